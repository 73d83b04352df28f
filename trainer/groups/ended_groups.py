"""What is on `group-events` about the groups of one partition: which have ended, and what was said of the others
(design/trainer#watermarks).

Guarantees: pure; folded from the log at a start and from each transaction once it is committed, to the same effect. A
group that ended costs 16 bytes and what a set needs for them, below 64. A mark is never above what a start still needs:
a final event counts once the step is closed that it was judged for, and where the place of an event isn't known it
counts as the least that it can be. Leaves out: the records of a group (`assembly`), and writing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from itertools import chain

from rolloutlog.buffer.group.ended_ids import EndedIds
from rolloutlog.contract.ids import ended_id

CHUNK = 2048
"""Ids of a chunk: 43 KB as JSON has them, below the least limit that a topic may have."""


@dataclass(slots=True)
class Remarks:
    """What was said of a group that hasn't ended, from `offset` on: members and attempts that `expired`, the last at
    `asked_at`, and below which offset of `rollouts` a final event that is void now had looked; None: there is none."""

    offset: int
    expired: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    void_below: int | None = None
    asked_at: int = 0


@dataclass(slots=True)
class Ending:
    """A group with a final event of a step that isn't closed yet. `first` is at or below its first record, `event` at
    or below the final event, None until that is committed."""

    first: int
    step: int = 0
    event: int | None = None


@dataclass(slots=True)
class EndedGroups:
    """`ids` are the groups that ended by a step that is closed, `partial` those of them that are in no chunk, each with
    the least offset of its final event. `seeds` are the origin seeds of groups that haven't ended so, by offset, of
    those below `next_seed`. `chunk` is the newest chunk and `oldest` the first, None where none is known; `next_event`
    is the end of `group-events` as far as is known, `closed` the last step that was."""

    ids: EndedIds = field(default_factory=EndedIds)
    ending: dict[str, Ending] = field(default_factory=dict[str, Ending])
    said: dict[str, Remarks] = field(default_factory=dict[str, Remarks])
    partial: dict[bytes, int] = field(default_factory=dict[bytes, int])
    seeds: dict[str, int] = field(default_factory=dict[str, int])
    chunk: int | None = None
    oldest: int | None = None
    next_event: int = 0
    next_seed: int = 0
    closed: int = 0

    def __contains__(self, group: str) -> bool:
        """True if the group has its final event, committed or not."""
        return group in self.ending or group in self.ids

    # what the log says, in its order

    def finish(self, group: str, step: int, event: int, *, first: int) -> None:
        """A live final event, at or above the offset `event`; the group's records lie at or above `first`."""
        if group not in self.ids:
            ending = self.ending.setdefault(group, Ending(first))
            ending.step, ending.event = step, event

    def expire(self, group: str, member: int, attempt: int, event: int, at: int = 0) -> None:
        """A `member.expired`, at or above the offset `event`, said `at` that time."""
        if group not in self:
            said = self.said.setdefault(group, Remarks(event))
            said.expired.append((member, attempt))
            said.asked_at = max(said.asked_at, at)

    def void(self, group: str, as_of: int, event: int) -> None:
        """A final event of an abandoned timeline."""
        if group not in self:
            said = self.said.setdefault(group, Remarks(event))
            said.void_below = max(said.void_below or 0, as_of)

    def close(self, step: int) -> None:
        """That step is on the log: what ended by it, or by an earlier one, has ended for good."""
        self.closed = step
        for group in self.ended_by(step):
            ending = self.ending.pop(group)
            self.said.pop(group, None)
            self.seeds.pop(group, None)
            if ending.event is not None and group not in self.ids:
                name = ended_id(group)
                self.ids.add([name])
                self.partial[name] = ending.event

    def take_chunk(self, names: Iterable[bytes], offset: int) -> None:
        """Ids that are in the chunk at `offset`."""
        listed = [*names]
        self.ids.add(listed)
        for name in listed:
            self.partial.pop(name, None)
        self.chunk = offset if self.chunk is None else max(self.chunk, offset)
        self.oldest = self.chunk if self.oldest is None else self.oldest

    def recall(self, ids: bytes, newest: int | None, oldest: int | None) -> None:
        """Before all else, the ids in all chunks, of which the newest and the oldest lie there."""
        self.ids.fill(ids)
        self.chunk, self.oldest = newest, oldest

    def passed(self, next_event: int) -> None:
        """`group-events` is known up to there."""
        self.next_event = max(self.next_event, next_event)

    def saw_seed(self, group: str, offset: int) -> None:
        """An origin seed of a train group."""
        if group not in self.ids:
            self.seeds.setdefault(group, offset)

    # what a step that is to be closed will say

    def ended_by(self, step: int) -> list[str]:
        """Groups whose final event is on the log and of that step or an earlier one."""
        return [group for group, one in self.ending.items() if one.event is not None and one.step <= step]

    def chunk_with(self, ended: Iterable[str]) -> list[bytes]:
        """The ids of the chunk that the step fills by which these end; empty where it fills none."""
        waiting = list(dict.fromkeys([*self.partial, *map(ended_id, ended)]))
        return waiting[:CHUNK] if len(waiting) >= CHUNK else []

    def first_event(self, ended: Collection[str]) -> int:
        """The mark on `group-events` once these have ended, whatever else the same transaction says."""
        said = (said.offset for group, said in self.said.items() if group not in ended)
        ahead = (one.event for one in self.ending.values() if one.event is not None)
        return min(chain([self.next_event], said, ahead, self.partial.values()))

    def first_seed(self, ended: Collection[str]) -> int:
        """The mark on `seeds` once these have ended."""
        return min((at for group, at in self.seeds.items() if group not in ended), default=self.next_seed)
