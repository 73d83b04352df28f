"""Ranges of partitions in turns, whatever the broker answers first (design/trainer#offline)."""

from __future__ import annotations

import pytest

from rolloutlog.contract.ids import id_of
from rolloutlog.contract.topics import Topic
from rolloutlog.kafka.read.steady_tail import TURN, SteadyTail
from tests.cases.raw import Raw
from tests.trainer.desk import rollout
from tests.trainer.log import Log

pytestmark = pytest.mark.broker

Seen = list[tuple[int, int]]
"""Partition and offset of each event, in the order in which they came."""


async def read(tail: SteadyTail, stops: dict[int, int]) -> Seen:
    """All that comes; in the end every position is the stop."""
    seen: Seen = []
    while any([await tail.position(Topic.ROLLOUTS, number) < stop for number, stop in stops.items()]):
        seen += [(event.partition, event.offset) for event in await tail.poll(200)]
    assert await tail.poll(0) == []
    assert await tail.read_out() == {(Topic.ROLLOUTS, number) for number in stops}
    return seen


def in_turns(known: dict[int, list[int]]) -> Seen:
    """The order that it promises."""
    left, seen = {number: list(offsets) for number, offsets in sorted(known.items())}, Seen()
    while any(left.values()):
        for number, offsets in left.items():
            seen += [(number, offset) for offset in offsets[:TURN]]
            del offsets[:TURN]
    return seen


async def test_the_order_depends_on_offsets_alone(log: Log) -> None:
    """However little a fetch brings, whoever reads, and once more after `rewind`; nothing outside the ranges comes."""
    await log.write(*(rollout(0, group=id_of(i)) for i in range(700)))
    offsets = dict[int, list[int]]()
    for event in await log.read(Topic.ROLLOUTS):
        offsets.setdefault(event.partition, []).append(event.offset)
    starts = {0: offsets[0][3], 1: 0, 2: offsets[2][50]}
    stops = {0: offsets[0][-1] + 1, 1: offsets[1][100], 2: offsets[2][50]}
    kept = {number: [at for at in found if starts[number] <= at < stops[number]] for number, found in offsets.items()}
    assert len(kept[0]) > 2 * TURN
    assert not kept[2]
    places = {(Topic.ROLLOUTS, number): start for number, start in starts.items()}
    ends = {(Topic.ROLLOUTS, number): stop for number, stop in stops.items()}
    for fetch_bytes, readers in ((1 << 12, 0), (32 << 20, 0), (1 << 12, 2)):
        async with SteadyTail(log.connection, places, ends, fetch_bytes=fetch_bytes, readers=readers) as tail:
            assert await read(tail, stops) == in_turns(kept)
            tail.rewind(places)
            assert await read(tail, stops) == in_turns(kept)


@pytest.mark.parametrize("checks", [True, False])
async def test_readers_that_check_mark_what_is_sound(log: Log, checks: bool) -> None:
    good = Raw.of(rollout(0))
    bad = good.holding((good.value or b"")[:-1])
    await log.write_raw([good, bad, good])
    number = good.partition(3)
    starts, stops = {(Topic.ROLLOUTS, number): 0}, {(Topic.ROLLOUTS, number): 3}
    async with SteadyTail(log.connection, starts, stops, readers=1, checks=checks) as tail:
        events = await tail.poll(20_000)
    assert [event.is_sound for event in events] == [checks, False, checks]
