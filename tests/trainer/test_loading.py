"""Values read off the event loop (design/trainer#columns)."""

from __future__ import annotations

import numpy as np
from msgspec.structs import replace

from rolloutlog.contract.events.event import Event
from rolloutlog.contract.record.rollout import Rollout
from rolloutlog.trainer.groups.announced import Announced, announced
from rolloutlog.trainer.groups.rollout_facts import Arrived, Bad
from rolloutlog.trainer.stream.loading import FEW, LONG, read_together
from tests.cases.raw import Raw

COUNT, TOKENS = FEW + 5, 30_000


def record(member: int) -> tuple[Announced, Event]:
    made = Rollout.flat(
        prompt_ids=[1], response_ids=np.full(TOKENS, member, np.int32), logprobs=np.zeros(TOKENS, np.float32),
        versions=4, reward=float(member), group="g", member=member, group_size=COUNT,
    )  # fmt: skip
    event = Raw.of(made).event(1, member)
    fact = announced(event, 1)
    assert fact is not None
    return fact, event


async def test_long_values_that_several_threads_read_come_in_their_order() -> None:
    """And a bad one in its place."""
    records = [record(member) for member in range(COUNT)]
    fact, event = records[7]
    records[7] = fact, replace(event, value=(event.value or b"")[:-1])
    assert sum(len(event.value or b"") for _, event in records) > 2 * LONG
    found = await read_together(records)
    assert [one.rollout.slot.member if isinstance(one, Arrived) else one.slot.member for one in found] == [
        *range(COUNT)
    ]
    assert [number for number, one in enumerate(found) if isinstance(one, Bad)] == [7]
    assert await read_together(records[:FEW]) != []
