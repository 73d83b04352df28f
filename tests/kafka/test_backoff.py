"""Failures are borne for a while, with growing pauses, and then told (design/exactly-once#waiting: nothing waits
silently)."""

from __future__ import annotations

import asyncio

import pytest
from aiokafka.errors import KafkaConnectionError, KafkaError, TopicAuthorizationFailedError

from rolloutlog.contract.errors import BrokerUnreachable, NotFound
from rolloutlog.kafka.client.backoff import MOST_S, Backoff, retried
from rolloutlog.kafka.loop.loop_options import LoopOptions


async def test_pauses_grow_to_a_bound_and_begin_anew_after_a_success() -> None:
    backoff = Backoff(limit_s=60, max_crashes=3)
    pauses = [backoff.failed(BrokerUnreachable("away")) for _ in range(8)]
    assert pauses == [0.2, 0.4, 0.8, 1.6, 3.2, MOST_S, MOST_S, MOST_S]
    backoff.succeeded()
    assert backoff.failed(BrokerUnreachable("away")) == 0.2


async def test_patience_ends_with_the_failure_itself() -> None:
    crashing, waiting = Backoff(limit_s=60, max_crashes=2), Backoff(limit_s=0, max_crashes=2)
    crashing.failed(KeyError("bug"), crashed=True)
    with pytest.raises(KeyError):
        crashing.failed(KeyError("bug"), crashed=True)
    waiting.failed(BrokerUnreachable("away"))
    await asyncio.sleep(0)
    with pytest.raises(BrokerUnreachable):
        waiting.failed(BrokerUnreachable("away"))


async def test_a_call_is_tried_again_until_it_passes_or_time_is_over() -> None:
    left = [BrokerUnreachable("away"), KafkaConnectionError("away"), None]

    async def work() -> str:
        if (error := left.pop(0)) is not None:
            raise error
        return "done"

    assert await retried(work, BrokerUnreachable, KafkaError, limit_s=5, pause_s=0) == "done"
    left += [BrokerUnreachable("away"), BrokerUnreachable("still away")]
    with pytest.raises(BrokerUnreachable, match="still away"):
        await retried(work, BrokerUnreachable, limit_s=0.02, pause_s=0.05)
    for hopeless in (TopicAuthorizationFailedError("in vain"), NotFound("of another kind")):
        left += [hopeless, None]
        with pytest.raises(type(hopeless)):
            await retried(work, BrokerUnreachable, KafkaError, limit_s=5, pause_s=0)
        assert left.pop() is None


def test_the_interval_grows_with_what_is_owned() -> None:
    """max(100 ms, owned partitions x 25 ms) (design/exactly-once#loop)."""
    options = LoopOptions()
    assert [options.interval_s(owned) for owned in (1, 4, 6, 48)] == [0.1, 0.1, pytest.approx(0.15), pytest.approx(1.2)]
