"""How the feeders of a run stand, for people who look: what is open, how much may be, and why nothing is fed
(design/live-loop#feeder).

Guarantees: reads only, and as much as a feeder reads when it starts; the same whoever asks and whichever feeder has
died. Leaves out: whether one runs, and a feeder that hasn't written anything yet.
"""

from __future__ import annotations

from dataclasses import dataclass

from pydantic import ValidationError

from rolloutlog.contract.events.event import Event
from rolloutlog.contract.events.group_events import GroupFinal, is_chunk, read_group_event
from rolloutlog.contract.events.seeds import Seed
from rolloutlog.contract.events.validation import read_headers
from rolloutlog.contract.roles import Role
from rolloutlog.contract.settings import Settings
from rolloutlog.contract.topics import Topic
from rolloutlog.contract.vocabulary import EventType
from rolloutlog.kafka.client.connection import Connection, connect
from rolloutlog.kafka.read.ends import Place, ends
from rolloutlog.kafka.read.tail import Tail
from rolloutlog.kafka.run_record import RunRecord, read_run
from rolloutlog.producers.feeding.feed_cursor import PREFIX, FeedCursor, feed_starts
from rolloutlog.producers.feeding.fresh_groups import FreshGroups
from rolloutlog.producers.feeding.fresh_room import FeedLack, FreshRoom


@dataclass(slots=True, frozen=True)
class FeederView:
    """The feeder of `env`: its place in its source, its room, and what it lacks where it may feed nothing."""

    env: str
    epoch: int
    place: int
    room: FreshRoom
    lack: FeedLack | None


async def feeder_views(settings: Settings) -> list[FeederView]:
    """Those that have fed the run, by name. Raises what reading the run raises."""
    connection = await connect(settings, Role.PEOPLE)
    run = await read_run(connection)
    cursors, trainer = _cursors(run), run.trainer_settings() or settings.trainer
    groups = {env: FreshGroups(env, tries=1) for env in cursors}
    await _read(connection, run, cursors, groups)
    views: list[FeederView] = []
    for env, cursor in cursors.items():
        room = FreshRoom.of(trainer, groups[env], env, partitions=run.partitions, share=cursor.share)
        lack = FeedLack.NO_TASK if cursor.is_done else room.lack
        views.append(FeederView(env, cursor.epoch, cursor.place, room, lack))
    return views


def _cursors(run: RunRecord) -> dict[str, FeedCursor]:
    """By environment; one that can't be read is its feeder's to tell."""
    found: dict[str, FeedCursor] = {}
    for name, said in sorted(run.cursors.items()):
        if name.startswith(PREFIX):
            try:
                found[name.removeprefix(PREFIX)] = FeedCursor.model_validate(dict(said))
            except ValidationError:
                continue
    return found


async def _read(
    connection: Connection, run: RunRecord, cursors: dict[str, FeedCursor], groups: dict[str, FreshGroups]
) -> None:
    """From where the feeders would begin to the end; seeds first, since a seed is on the log before its group's end."""
    known = await ends(connection, [Topic.SEEDS, Topic.GROUP_EVENTS])
    begins: dict[Place, int] = {}
    for cursor in cursors.values():
        for place, start in (await feed_starts(connection, run.partitions, cursor)).items():
            begins[place] = min(start, begins.get(place, start))
    for topic in (Topic.SEEDS, Topic.GROUP_EVENTS):
        starts = {p: start for p, start in begins.items() if p[0] is topic and start < known[p].stable}
        if starts:
            async with Tail(connection, starts, known=known) as tail:
                async for events in tail.until({place: known[place].stable for place in starts}):
                    for event in events:
                        _fold(groups, event, run.partitions)


def _fold(groups: dict[str, FreshGroups], event: Event, partitions: int) -> None:
    """What can't be read says nothing."""
    if is_chunk(event):
        return
    try:
        kind = read_headers(event, partitions)
        if kind is EventType.SEED_EMITTED:
            seed = Seed.of(event)
            for each in groups.values():
                each.emitted(seed, event.partition, event.offset)
        elif event.topic is Topic.GROUP_EVENTS and isinstance(final := read_group_event(event), GroupFinal):
            for each in groups.values():
                each.ended(final)
    except ValueError:
        return
