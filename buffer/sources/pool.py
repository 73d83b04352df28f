"""The newest sources of a shard and the candidates among them, in the order (offset, node) (design/buffer#pool;
decisions/replay#30 to #35).

Guarantees: holds rows, never payloads; which sources are here is a function of `rollouts` alone, since exhausted,
refused, superseded and late ones keep their place, so the order in which the other topics are folded doesn't matter.
The newest candidates stay, within the limits that the settings name. Leaves out: the limits (`limits`), which rollouts
qualify (`selection`) and which may be drawn now (`live`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from sortedcontainers import SortedDict

from rolloutlog.buffer.index.rollout_row import RolloutRow
from rolloutlog.buffer.sources.candidates import NOWHERE, Candidate, Mark, SourceRecord
from rolloutlog.buffer.sources.limits import Eviction, Limits
from rolloutlog.buffer.sources.live import LiveCandidates
from rolloutlog.contract.settings import BufferSettings

Attempt = tuple[int, int]
"""Member and attempt."""


@dataclass(slots=True)
class Pool:
    """At most `capacity` candidates, of the newest sources, none older than `floor`, an offset on `rollouts`.

    `offsets` finds the sources of a group by member and attempt; `early` holds marks of records that aren't folded yet.
    `live` follows every change, of the fold and of what is in flight; `places` were given so far; `evicted` counts the
    candidates that weren't kept. `spurned` has of each group the newest record that left for a late reward.
    """

    capacity: int
    live: LiveCandidates = field(compare=False)
    limits: Limits = field(compare=False)
    floor: int = field(default=0, compare=False)
    sources: SortedDict[int, SourceRecord] = field(default_factory=SortedDict[int, SourceRecord])
    offsets: dict[str, dict[Attempt, int]] = field(default_factory=dict[str, "dict[Attempt, int]"])
    early: dict[int, Counter[Mark]] = field(default_factory=dict[int, "Counter[Mark]"])
    size: int = 0
    places: int = field(default=0, compare=False)
    spurned: dict[str, int] = field(default_factory=dict[str, int], compare=False)
    evicted: Counter[Eviction] = field(default_factory=Counter[Eviction], compare=False)

    @classmethod
    def empty(cls, settings: BufferSettings) -> Pool:
        """A pool before its first source."""
        return cls(
            settings.capacity, LiveCandidates(settings.derivations), Limits(settings.keep, settings.capacity)
        )  # fmt: skip

    def add(self, source: SourceRecord, *, known: bool = True) -> None:
        """Take the newest record's source, unless its own reward is one that isn't kept; not `known`: nothing that is
        said of its group concerns it."""
        row = source.row
        if not self.limits.takes(row.reward):
            self.evicted[Eviction.REWARD] += len(source.candidates)
            return
        if len(source.candidates) > 1:
            source.candidates.sort(key=lambda candidate: candidate.order)
        self.sources[row.offset] = source
        if known:
            self.offsets.setdefault(row.group, {})[row.member, row.attempt] = row.offset
        self.size += len(source.candidates)
        for mark in self.early.pop(row.offset, Counter[Mark]()).elements():
            _mark(source, mark)
        for candidate in source.candidates:
            candidate.place = self.places
            self.places += 1
            self.live.add(source, candidate)
        self.limits.add(source)
        self._make_room(row)

    def _make_room(self, row: RolloutRow) -> None:
        """That record came: what is above a limit leaves, the oldest first."""
        for offset in self.limits.aged(row):
            self._evict(self.sources[offset], Eviction.AGE)
        for offset in self.limits.crowded(row):
            self._evict_first(self.sources[offset], Eviction.ENV_SHARE)
        while self.size > self.capacity:
            self._evict_first(self.sources.peekitem(0)[1], Eviction.CAPACITY)

    def _evict_first(self, source: SourceRecord, why: Eviction) -> None:
        """Drop the first candidate of a source, and the source with the last of them."""
        if len(source.candidates) == 1:
            self._evict(source, why)
        else:
            self._drop(source.candidates.pop(0), why)
            self.limits.shrink(source.row, 1)

    def _evict(self, source: SourceRecord, why: Eviction) -> None:
        for candidate in source.candidates:
            self._drop(candidate, why)
        self.limits.remove(source)
        del self.sources[source.row.offset]
        self._unlist(source)

    def _drop(self, candidate: Candidate, why: Eviction) -> None:
        self.live.remove(candidate)
        candidate.place = NOWHERE
        self.size -= 1
        self.evicted[why] += 1

    def _unlist(self, source: SourceRecord) -> None:
        row = source.row
        kin = self.offsets.get(row.group, {})
        if kin.get((row.member, row.attempt)) == row.offset:
            del kin[row.member, row.attempt]
            if not kin:
                del self.offsets[row.group]

    @property
    def oldest(self) -> int:
        """Offset of the oldest source; 0 without any."""
        return next(iter(self.sources), 0)

    def annotate(self, group: str, member: int, attempt: int, event_id: str, reward: float | None) -> bool:
        """A late reward of a source; False if it isn't here or was told before."""
        offset = self.offsets.get(group, {}).get((member, attempt))
        if offset is None or event_id in self.sources[offset].notes:
            return False
        source = self.sources[offset]
        source.notes |= {event_id}
        source.reward = reward
        if self.limits.takes(reward):
            self._list_anew(source)
        else:
            self._evict(source, Eviction.REWARD)
            self.spurned[group] = max(offset, self.spurned.get(group, 0))
        return True

    def concerns(self, group: str) -> bool:
        """True while a record of that group is here, or would be if nobody knew its late reward."""
        if group in self.offsets:
            return True
        if self.spurned.get(group, -1) < self.oldest:
            self.spurned.pop(group, None)
        return group in self.spurned

    def supersede(self, group: str, member: int, attempt: int) -> None:
        """A record of that attempt is on the log: sources of lower ones are dead places."""
        for (other, lower), offset in self.offsets.get(group, {}).items():
            if other == member and lower < attempt:
                self._kill(self.sources[offset])

    def end(self, group: str, as_of: int) -> None:
        """The group has ended: sources at or above `as_of` came too late, and are dead places."""
        for offset in [offset for offset in self.offsets.get(group, {}).values() if offset >= as_of]:
            source = self.sources[offset]
            source.reward, source.notes = source.row.reward, frozenset()
            self._unlist(source)
            self._kill(source)

    def forget(self, group: str) -> None:
        """Nothing is said of that group any more."""
        self.end(group, 0)

    def _kill(self, source: SourceRecord) -> None:
        source.dead = True
        self._list_anew(source)

    def _list_anew(self, source: SourceRecord) -> None:
        for candidate in source.candidates:
            self.live.remove(candidate)
            self.live.add(source, candidate)

    def mark(self, mark: Mark, next_offset: int) -> None:
        """Count a draw or a refusal; `next_offset` is that of the fold of `rollouts`, so the record may come later."""
        if (source := self.sources.get(mark.offset)) is not None:
            _mark(source, mark)
            self._list_anew(source)
        elif mark.offset >= next_offset:
            self.early.setdefault(mark.offset, Counter())[mark] += 1

    def settle(self, next_offset: int) -> None:
        """Forget marks of records that were folded and aren't sources."""
        if self.early:
            self.early = {offset: marks for offset, marks in self.early.items() if offset >= next_offset}

    # what isn't in the fold

    def take(self, rank: int) -> tuple[SourceRecord, Candidate]:
        """The live candidate at that rank, of which a draw is under way from now on."""
        candidate = self.live.pop(rank)
        candidate.in_flight += 1
        source = self.sources[candidate.offset]
        self.live.add(source, candidate)
        return source, candidate

    def hold(self, candidate: Candidate) -> None:
        """A draw of it is under way, whatever its rank."""
        candidate.in_flight += 1
        self._look_again(candidate)

    def release(self, candidate: Candidate) -> None:
        """A draw of it was folded, or is void."""
        candidate.in_flight -= 1
        self._look_again(candidate)

    def discard(self, candidate: Candidate) -> None:
        """No seed can be made of it: it keeps its rank, and is passed over."""
        candidate.discarded = True
        self._look_again(candidate)

    def _look_again(self, candidate: Candidate) -> None:
        if candidate.place != NOWHERE:
            self.live.remove(candidate)
            self.live.add(self.sources[candidate.offset], candidate)

    def __iter__(self) -> Iterator[tuple[SourceRecord, Candidate]]:
        """All candidates in the order (offset, node), live or not."""
        for source in self.sources.values():
            for candidate in source.candidates:
                yield source, candidate


def _mark(source: SourceRecord, mark: Mark) -> None:
    for candidate in source.candidates:
        if candidate.derivation == mark.derivation and candidate.point.node == mark.node:
            candidate.draws += not mark.refused
            candidate.refused |= mark.refused
