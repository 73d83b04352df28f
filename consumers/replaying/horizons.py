"""What `--to-offset`, `--to-time` and `--to-step` are on each partition (design/buffer#offline).

Guarantees: a time is broker time of `rollouts` alone; a step is what its trainer had read where it drew groups, and its
final events, told from live ones, with no clock. An offset or a step that isn't there is refused, never taken for the
next best. Leaves out: folding up to there (`past_index`).
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import aclosing
from dataclasses import dataclass
from datetime import datetime

from rolloutlog.buffer.offline.cut import Horizon
from rolloutlog.contract.errors import NotFound, SettingsError
from rolloutlog.contract.events.group_events import GroupFinal, read_group_event
from rolloutlog.contract.events.validation import read_headers
from rolloutlog.contract.policies import History
from rolloutlog.contract.topics import Topic
from rolloutlog.kafka.client.connection import Connection
from rolloutlog.kafka.read.ends import ends, first_since
from rolloutlog.kafka.read.policy_log import read_policy_log
from rolloutlog.kafka.read.reading import read_to_end


@dataclass(slots=True, frozen=True)
class Until:
    """Up to where a buffer is frozen: offsets of `rollouts` by partition, a time, or a train step; none of them: up to
    now. Raises SettingsError where more than one is given."""

    offsets: Mapping[int, int] | None = None
    time: datetime | None = None
    step: int | None = None

    def __post_init__(self) -> None:
        """Refuse what has two meanings."""
        if sum(each is not None for each in (self.offsets, self.time, self.step)) > 1:
            raise SettingsError("an offset, a time and a step cut the log in different places", "give one of them")
        if self.time is not None and self.time.tzinfo is None:
            raise SettingsError(f"{self.time} is of no time zone", "end it with Z or with an offset such as +02:00")

    @property
    def is_now(self) -> bool:
        """True where nothing is given."""
        return self.offsets is None and self.time is None and self.step is None


async def horizons(connection: Connection, partitions: int, until: Until) -> list[Horizon]:
    """The horizon of each partition. Raises SettingsError, NotFound."""
    if until.offsets is not None:
        return await _at_offsets(connection, partitions, until.offsets)
    if until.time is not None:
        return await _at_time(connection, partitions, until.time)
    if until.step is not None:
        return await _at_step(connection, partitions, until.step)
    return [Horizon() for _ in range(partitions)]


async def _at_offsets(connection: Connection, partitions: int, offsets: Mapping[int, int]) -> list[Horizon]:
    if set(offsets) != set(range(partitions)):
        named = ", ".join(map(str, sorted(offsets)))
        raise SettingsError(
            f"the run has partitions 0 to {partitions - 1}; offsets are given for {named}", "name each of them once"
        )
    known = await ends(connection, [Topic.ROLLOUTS])
    for partition, offset in offsets.items():
        if offset > (end := known[Topic.ROLLOUTS, partition].stable):
            raise NotFound(f"rollouts/{partition} ends at offset {end}, below {offset}")
    return [Horizon(offsets[partition]) for partition in range(partitions)]


async def _at_time(connection: Connection, partitions: int, time: datetime) -> list[Horizon]:
    known = await ends(connection, [Topic.ROLLOUTS])
    places = [(Topic.ROLLOUTS, partition) for partition in range(partitions)]
    since = await first_since(connection, places, int(time.timestamp() * 1000))
    return [Horizon(min(since.get(place, known[place].stable), known[place].stable)) for place in places]


async def _at_step(connection: Connection, partitions: int, step: int) -> list[Horizon]:
    """On each partition what the trainer had read when it last drew there, up to that step."""
    history = (await read_policy_log(connection, allow_open=True)).history
    found = [await _finals(connection, partition, partitions, history) for partition in range(partitions)]
    newest = max((final.step for finals in found for _, final in finals), default=None)
    if newest is None or newest < step:
        trained = "no step ended any group" if newest is None else f"the newest step that ended a group is {newest}"
        raise NotFound(f"step {step} isn't on the log: {trained}")
    return [_up_to(finals, step) for finals in found]


def _up_to(finals: list[tuple[int, GroupFinal]], step: int) -> Horizon:
    ended = [(offset, final.as_of) for offset, final in finals if final.step <= step]
    return Horizon(
        rollouts=max((as_of for _, as_of in ended), default=0),
        group_events=max((offset + 1 for offset, _ in ended), default=0),
    )


async def _finals(
    connection: Connection, partition: int, partitions: int, history: History
) -> list[tuple[int, GroupFinal]]:
    """Live final events with their offsets."""
    found: list[tuple[int, GroupFinal]] = []
    batches = read_to_end(connection, Topic.GROUP_EVENTS, partition, allow_open=True)
    async with aclosing(batches):
        async for events in batches:
            for event in events:
                try:
                    read_headers(event, partitions)
                    said = read_group_event(event)
                except ValueError:
                    continue  # it is among the dead letters
                if isinstance(said, GroupFinal) and history.is_live(said.timeline, said.step):
                    found.append((event.offset, said))
    return found
