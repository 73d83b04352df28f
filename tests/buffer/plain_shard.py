"""A shard by the rules as people read them: everything that was said is kept, and looked through again each time.

Guarantees: nothing of the real fold is used. Leaves out: eval groups, which `test_fold_is_pure` has, and everything
that depends on a clock.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from rolloutlog.contract.topics import INPUT_TOPICS, Topic


class Arrived(NamedTuple):
    """A record; `value` tells it from others of its attempt."""

    group: str
    member: int
    attempt: int
    ending: str
    reward: float | None
    value: str


class Noted(NamedTuple):
    """A late reward."""

    group: str
    member: int
    attempt: int
    reward: float


class Cancelled(NamedTuple):
    """Members that get no record."""

    group: str
    members: tuple[int, ...]
    refused: bool


class Taken(NamedTuple):
    """Somebody works on the origin seed."""

    group: str


class Seeded(NamedTuple):
    """An origin seed; a derived one names the source's offset and its draw."""

    group: str
    source: int | None
    number: int | None


class Expired(NamedTuple):
    """An attempt that is too old."""

    group: str
    member: int
    attempt: int


class Final(NamedTuple):
    """The end of a group."""

    group: str
    as_of: int


Said = Arrived | Noted | Cancelled | Taken | Seeded | Expired | Final


@dataclass
class PlainShard:
    """What was said on each topic, up to where it was read. A completed record has one candidate. Records with a reward
    above `most_reward` aren't kept; the origin seeds of the groups `gone` were deleted, and lay at the first offset."""

    capacity: int
    least_reward: float
    most_reward: float
    gone: tuple[str, ...]
    said: dict[Topic, list[Said]] = field(default_factory=lambda: {topic: [] for topic in INPUT_TOPICS})

    def cut(self, ends: dict[Topic, int]) -> PlainShard:
        """The same with less read."""
        said = {topic: self.said[topic][: ends[topic]] for topic in INPUT_TOPICS}
        return PlainShard(self.capacity, self.least_reward, self.most_reward, self.gone, said)

    @property
    def finals(self) -> dict[str, int]:
        """`as_of` of the ended groups: the first final stands."""
        finals: dict[str, int] = {}
        for event in self.said[Topic.GROUP_EVENTS]:
            if isinstance(event, Final):
                finals.setdefault(event.group, event.as_of)
        return finals

    @property
    def origins(self) -> dict[str, Seeded]:
        """The first seed of each group."""
        found: dict[str, Seeded] = {}
        for event in self.said[Topic.SEEDS]:
            if isinstance(event, Seeded):
                found.setdefault(event.group, event)
        return found

    @property
    def opened(self) -> set[str]:
        """Groups that were spoken of and haven't ended."""
        return {event.group for events in self.said.values() for event in events} - self.finals.keys()

    def in_time(self, group: str) -> list[tuple[int, Said]]:
        """What was said on `rollouts` of a group before its end."""
        end = self.finals.get(group)
        events = enumerate(self.said[Topic.ROLLOUTS])
        return [(at, event) for at, event in events if event.group == group and (end is None or at < end)]

    def standing(self, group: str) -> dict[tuple[int, int], int]:
        """Offset of the first record of each attempt."""
        found: dict[tuple[int, int], int] = {}
        for at, event in self.in_time(group):
            if isinstance(event, Arrived):
                found.setdefault((event.member, event.attempt), at)
        return found

    def status(self, group: str, member: int) -> str:
        """How a member of an open group stands."""
        records = {attempt: at for (who, attempt), at in self.standing(group).items() if who == member}
        events = [event for _, event in self.in_time(group)]
        cancelled = any(isinstance(event, Cancelled) and member in event.members for event in events)
        gone = [
            event.attempt
            for event in self.said[Topic.GROUP_EVENTS]
            if isinstance(event, Expired) and (event.group, event.member) == (group, member)
        ]
        status = "open"
        if records and max(records) > max(gone, default=0):
            newest = self.said[Topic.ROLLOUTS][records[max(records)]]
            status = newest.ending if isinstance(newest, Arrived) else "open"
        return "cancelled" if cancelled and status in ("open", "aborted") else status

    @property
    def places(self) -> list[int]:
        """Offsets of the newest records with a candidate, whatever became of them; what isn't kept gives its place
        back, and what left before doesn't come again."""
        found: list[int] = []
        records = self.said[Topic.ROLLOUTS]
        for at, event in enumerate(records):
            if isinstance(event, Arrived) and event.ending == "completed" and (event.reward or 0) <= self.most_reward:
                found = [*found, at][-self.capacity :]
            elif isinstance(event, Noted) and event.reward > self.most_reward:
                found = [place for place in found if records[place][:3] != event[:3]]
        return found

    @property
    def draws(self) -> list[Seeded]:
        """Draws, each once: their numbers grow."""
        found: list[Seeded] = []
        for event in self.said[Topic.SEEDS]:
            newest = max((draw.number or 0 for draw in found), default=-1)
            if isinstance(event, Seeded) and event.number is not None and event.number > newest:
                found.append(event)
        return found

    @property
    def live(self) -> list[int]:
        """Offsets of the records that may be drawn now."""
        drawn = {draw.source for draw in self.draws} | self._refused()
        return [at for at in self.places if at not in drawn and self._stands(at) and self._fits(at)]

    def _refused(self) -> set[int | None]:
        groups = {event.group for event in self.said[Topic.ROLLOUTS] if isinstance(event, Cancelled) and event.refused}
        return {seed.source for group, seed in self.origins.items() if group in groups}

    def _stands(self, at: int) -> bool:
        record = self.said[Topic.ROLLOUTS][at]
        if not isinstance(record, Arrived):
            return False
        if self.standing(record.group).get((record.member, record.attempt)) != at:
            return False
        higher = [
            event
            for event in self.said[Topic.ROLLOUTS]
            if isinstance(event, Arrived) and event[:2] == record[:2] and event.attempt > record.attempt
        ]
        return not higher

    def _fits(self, at: int) -> bool:
        """Its newest reward lies in the band; saying the same again isn't news."""
        record = self.said[Topic.ROLLOUTS][at]
        if not isinstance(record, Arrived):
            return False
        notes = [event for event in self.said[Topic.ROLLOUTS] if isinstance(event, Noted) and event[:3] == record[:3]]
        news = list(dict.fromkeys(note.reward for note in notes))
        reward = news[-1] if news else record.reward
        return reward is not None and reward >= self.least_reward

    @property
    def forgotten(self) -> set[str]:
        """Ended groups that nothing can concern any more."""
        return {group for group, as_of in self.finals.items() if self._is_over(group, as_of)}

    def _is_over(self, group: str, as_of: int) -> bool:
        read, origin, places = len(self.said[Topic.ROLLOUTS]), self.origins.get(group), self.places
        if read < as_of or (origin is None and not self._is_gone(group)):
            return False
        if any(at in places for at in self.standing(group).values()):
            return False
        drew = None if origin is None else origin.source
        return drew is None or (drew < read and drew not in places)

    def _is_gone(self, group: str) -> bool:
        """Its origin seed is told by a record in time, and `seeds` is read past where it lay."""
        return group in self.gone and bool(self.standing(group)) and bool(self.said[Topic.SEEDS])
