"""Payloads are kept within their bytes, and the oldest go first."""

from __future__ import annotations

from rolloutlog.buffer.shard.payload_cache import PayloadCache
from rolloutlog.contract.events.body import Body
from rolloutlog.contract.record import value
from rolloutlog.contract.record.trajectory import Trajectory
from tests.buffer.events_by_hand import tool_turns


def body(text: str = "") -> Body:
    return Body(value.encode(Trajectory.build(tool_turns(1, text), {})), value.SAFETENSORS)


def test_the_oldest_go_first_and_the_bound_holds() -> None:
    one = body()
    cache = PayloadCache(2 * len(one.value))
    for offset in range(3):
        cache.put(offset, one)
    assert [offset in cache for offset in range(3)] == [False, True, True]
    assert cache.get(0) is None
    found = cache.get(2)
    assert found is not None
    assert len(found.nodes) == len(tool_turns(1))


def test_a_value_above_the_bound_is_not_kept_and_drives_nothing_out() -> None:
    one = body()
    cache = PayloadCache(len(one.value))
    cache.put(0, one)
    cache.put(1, body("longer"))
    assert (0 in cache, 1 in cache) == (True, False)
