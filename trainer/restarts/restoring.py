"""What a trainer that starts must know of the groups before it, read off the log (design/trainer#watermarks).

Guarantees: a start costs what is open: of `group-events` the chunks of ended groups are read, and what lies at or above
the watermark; of a namespace without any, all. Every final event that is live on the current timeline's path ends its
group, a `member.expired` counts always, so a group is trained at most once over restarts. Leaves out: the marks
(`sound_marks`), and following these topics, since the trainer alone writes them.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass

from rolloutlog.contract.events.dead_letters import rejected_place
from rolloutlog.contract.events.event import Event
from rolloutlog.contract.events.group_events import (
    GroupEvent,
    GroupFinal,
    GroupsEnded,
    is_chunk,
    read_group_event,
    read_groups_ended,
)
from rolloutlog.contract.events.validation import read_headers
from rolloutlog.contract.handles import Handle
from rolloutlog.contract.policies import LAST_POLICY, History
from rolloutlog.contract.topics import Topic
from rolloutlog.contract.vocabulary import RejectReason
from rolloutlog.kafka.client.connection import Connection
from rolloutlog.kafka.read.ends import Ends, Place, ends_at
from rolloutlog.kafka.read.reading import settled
from rolloutlog.kafka.read.tail import Tail
from rolloutlog.trainer.groups.ended_groups import EndedGroups
from rolloutlog.trainer.restarts.sound_marks import SoundMarks

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Restored:
    """`endings` by partition, and `last_step`, the newest live one that trained a group or was closed; None if none
    did. `pass_number` is that of the pass that had begun; `begun`: after the marks, which say nothing of it."""

    endings: dict[int, EndedGroups]
    last_step: int | None
    pass_number: int = 1
    begun: bool = False


async def restore_endings(
    connection: Connection,
    history: History,
    marks: SoundMarks,
    rollouts: Mapping[int, int],
    *,
    wait_s: float,
    passes: bool = False,
) -> Restored:
    """Read to the present ends, waiting up to `wait_s` for a transaction that is open below one; `rollouts` are the
    ends of that topic, `passes`: groups may end once in each. Raises OpenTransaction."""
    places = [(Topic.GROUP_EVENTS, number) for number in range(len(marks.partitions))]
    ends = await settled(connection, places, wait_s)
    fold = EndingsFold(history, marks, rollouts, passes=passes)
    starts = {place: marks.partitions[place[1]].events for place in places}
    async for events in read_between(connection, starts, ends):
        for event in events:
            fold.fold(event)
    fold.read({number: end.stable for (_, number), end in ends.items()})
    return Restored(fold.endings, fold.last_step or None, fold.pass_number, begun=fold.begun)


class EndingsFold:
    """Pure: the chunks that marks name, then events in their order, each partition up to where it was `read`. Nothing
    can have looked at more of `rollouts` than there is of it.

    With `passes` a group ends once in each. The newest pass of which there is a live final event has `begun`, since
    nothing of it is written before the one before is through: what ended in that one says nothing any more, and what
    is void neither, as nobody was asked for anything.
    """

    def __init__(
        self, history: History, marks: SoundMarks, rollouts: Mapping[int, int], *, passes: bool = False
    ) -> None:
        self._history, self._marks, self._rollouts = history, marks.partitions, rollouts
        self._passes, self.begun = passes, False
        self.pass_number = 1 if marks.said is None else marks.said.pass_number
        self.last_step = max(marks.claimed, 0 if marks.said is None else marks.said.step)
        self._told_step = _told_step(marks, history)
        self._untold = list[tuple[int, int, str, int]]()
        """Step, partition, group and offset of what a step trained that nobody has closed."""
        self._chunks: dict[int, dict[int, GroupsEnded]] = {number: {} for number in marks.chunks}
        self.endings = {number: EndedGroups(next_seed=mark.seeds) for number, mark in enumerate(marks.partitions)}
        for number, chunks in marks.chunks.items():
            self.endings[number].recall(chunks.take(), chunks.newest, chunks.oldest)

    def read(self, ends: Mapping[int, int]) -> None:
        """All was folded, up to these ends."""
        self._tell_rest()
        for number, endings in self.endings.items():
            for offset, said in self._linked(number):
                endings.take_chunk(said.names, offset)
            endings.passed(ends[number])
            endings.close(self.last_step)

    def _tell_rest(self) -> None:
        """Steps follow each other, so what was trained right after the last that is known to be closed was a step too,
        whose closing was lost: it moves the step. One that follows on nothing is no trainer's, and counts for the last
        that does. All end their groups, since nobody may train one twice."""
        steps = {step for step, *_ in self._untold}
        while self.last_step + 1 in steps:
            self.last_step += 1
        for step, partition, group, offset in self._untold:
            if (ending := self.endings[partition].ending.get(group)) is not None:
                ending.step = min(ending.step, self.last_step)
            if step > self.last_step:
                log.warning("group-events/%d/%d is of step %d, which nobody has closed", partition, offset, step)

    def _linked(self, number: int) -> list[tuple[int, GroupsEnded]]:
        """Of the chunks above the marks those that a later start will find from the newest back. One whose answer was
        lost is named by nobody: its ids go into another one."""
        known, last = self._chunks[number], self.endings[number].chunk
        for newest in sorted(known, reverse=True):
            found, at = list[tuple[int, GroupsEnded]](), newest
            while at is not None and at in known and (not found or at < found[-1][0]):
                found.append((at, known[at]))
                at = known[at].before
            if at == last:
                return found[::-1]
        return []

    def fold(self, event: Event) -> None:
        """Fold one event of `group-events`."""
        if is_chunk(event):
            said = known_chunk(event)
            if said is not None and self._history.is_live(said.timeline, said.step) and self._counts(said):
                self._chunks[event.partition][event.offset] = said
            return
        if (known := known_event(event, len(self._marks))) is None:
            return
        if known.step >= LAST_POLICY and self._history.started:
            log.warning(
                "group-events/%d/%d is of a step that no policy can have: %d", event.partition, event.offset, known.step
            )
        elif isinstance(known, GroupFinal):
            self._fold_final(known, event.partition, event.offset)
        else:
            endings = self.endings[event.partition]
            endings.expire(known.group, known.member, known.attempt, event.offset, event.timestamp)

    def _fold_final(self, final: GroupFinal, partition: int, offset: int) -> None:
        if not self._history.is_live(final.timeline, final.step):
            if not self._passes:
                self.endings[partition].void(final.group, min(final.as_of, self._rollouts[partition]), offset)
            return
        if self._counts(final):
            self.endings[partition].finish(final.group, final.step, offset, first=self._first(partition))
        if final.reason is None and final.step > self._told_step:
            self._untold.append((final.step, partition, final.group, offset))
        elif final.reason is None:
            self.last_step = max(self.last_step, final.step)

    def _first(self, partition: int) -> int:
        return 0 if self.begun else self._marks[partition].low

    def _counts(self, said: GroupFinal | GroupsEnded) -> bool:
        """True unless it is of a pass that is over; of a later one nothing was known, so it begins here."""
        if self._passes and said.pass_number > self.pass_number:
            self.pass_number, self.begun = said.pass_number, True
            self._chunks = {number: {} for number in self._chunks}
            self.endings = {number: EndedGroups(next_seed=mark.seeds) for number, mark in enumerate(self._marks)}
        return not self._passes or said.pass_number == self.pass_number


def _told_step(marks: SoundMarks, history: History) -> int:
    """The last step that is known to be closed: what trains a group closes its step in the same transaction, so a final
    event of a later one is of a `run` that was restored from an older copy, or no trainer's. No bound where nobody
    knows which was the last."""
    if marks.said is None or not marks.newest:
        return LAST_POLICY
    fork = history.forks.get(history.timeline)
    return max(marks.said.step, 0 if fork is None else fork.step)


def known_chunk(event: Event) -> GroupsEnded | None:
    """A chunk; None, with a warning, for what says that it is one and can't be read, which no trainer wrote."""
    try:
        return read_groups_ended(event)
    except ValueError as error:
        log.warning("group-events/%d/%d can't be read: %s", event.partition, event.offset, error)
        return None


def known_event(event: Event, partitions: int | None) -> GroupEvent | None:
    """An event of a group; None, with a warning, for one that can't be read: what the shard sends to the dead letters,
    such as one on another partition than its group's of P."""
    try:
        read_headers(event, partitions)
        return read_group_event(event)
    except ValueError as error:
        log.warning("group-events/%d/%d can't be read: %s", event.partition, event.offset, error)
        return None


async def read_rejected(
    connection: Connection, lows: Mapping[int, int], *, wait_s: float = 0.0
) -> dict[Handle, RejectReason]:
    """Records of `rollouts` at or above these offsets that a dead letter names, and why.

    Its reason stays true for good, whoever wrote it, so that a group is never trained by a record which the audit
    counts as rejected.
    """
    place = (Topic.DEAD_LETTERS, 0)
    ends = await (settled(connection, [place], wait_s) if wait_s else ends_at(connection, [place]))
    found: dict[Handle, RejectReason] = {}
    async for events in read_between(connection, {place: 0}, ends):
        named = filter(None, map(_rejection, events))
        found.update((handle, why) for handle, why in named if handle.offset >= lows.get(handle.partition, 0))
    return found


async def read_between(
    connection: Connection, starts: Mapping[Place, int], ends: Mapping[Place, Ends]
) -> AsyncIterator[list[Event]]:
    """Events from the starts to the stable ends."""
    async with Tail(connection, starts, known=ends) as tail:
        async for events in tail.until({place: end.stable for place, end in ends.items()}):
            yield events


def _rejection(event: Event) -> tuple[Handle, RejectReason] | None:
    """The record of `rollouts` that a dead letter names, and why; None for other ones, and for an unknown reason."""
    topic, handle = rejected_place(event) or (None, None)
    if topic is not Topic.ROLLOUTS or handle is None:
        return None
    try:
        return handle, RejectReason(event.headers.reason or "")
    except ValueError:
        return None
