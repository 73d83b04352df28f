"""The newest sources of a shard and the candidates among them, in the order (offset, node) (design/buffer#pool;
decisions/replay#30 to #35).

Guarantees: holds rows, never payloads; which sources are here is a function of `rollouts` alone, since exhausted,
refused, superseded and late ones keep their place, and a late reward takes the place of whatever record of its attempt
is here, so the order in which the other topics are folded doesn't matter. The newest candidates stay, within the limits
that the settings name. Leaves out: the limits (`limits`), which rollouts qualify (`selection`) and which may be drawn
now (`live`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from heapq import heappop, heappush

from rolloutlog.buffer.index.rollout_row import RolloutRow
from rolloutlog.buffer.index.rows import AnnotationRow
from rolloutlog.buffer.sources.candidates import NOTHING_TOLD, Candidate, CandidateKey, Mark, SourceRecord
from rolloutlog.buffer.sources.limits import Eviction, Limits
from rolloutlog.buffer.sources.live import LiveCandidates
from rolloutlog.buffer.sources.screening import Screening, Skips
from rolloutlog.buffer.sources.source_list import SourceList
from rolloutlog.contract.handles import BEFORE
from rolloutlog.contract.settings import BufferSettings


@dataclass(slots=True)
class Pool:
    """At most `capacity` candidates, of the newest sources, none older than `floor`, an offset on `rollouts`.

    `kin` are the sources of each group, in their order; `early` holds marks of records that aren't folded yet, the
    lowest of which is the first of `awaited`. `live` follows every change, of the fold and of what is in flight;
    `evicted` counts the candidates that weren't kept. `waiting` are groups by the source that must leave before they
    can be forgotten, `freed` those of which it did.
    """

    capacity: int
    screening: Screening = field(compare=False)
    limits: Limits = field(compare=False)
    sources: SourceList
    live: LiveCandidates = field(compare=False)
    floor: int = field(default=-BEFORE, compare=False)
    kin: dict[str, list[SourceRecord]] = field(default_factory=dict[str, "list[SourceRecord]"], compare=False)
    early: dict[int, Counter[Mark]] = field(default_factory=dict[int, "Counter[Mark]"])
    awaited: list[int] = field(default_factory=list[int], compare=False)
    size: int = 0
    waiting: dict[int, set[str]] = field(default_factory=dict[int, "set[str]"], compare=False)
    freed: set[str] = field(default_factory=set[str], compare=False)
    evicted: Counter[Eviction] = field(default_factory=Counter[Eviction], compare=False)

    @classmethod
    def empty(cls, settings: BufferSettings) -> Pool:
        """A pool before its first source."""
        screening, sources = Screening(settings), SourceList()
        limits = Limits(settings.keep, settings.capacity)
        return cls(settings.capacity, screening, limits, sources, LiveCandidates(sources, screening))

    def offer(self, row: RolloutRow, skips: Skips, *, heeded: bool = True, dead: bool = False) -> SourceRecord | None:
        """The source that a record would be, for `add`; None where it is none, or older than all that were kept."""
        if row.offset < self.floor or (source := self.screening.source_of(row, skips)) is None:
            return None
        source.heeded, source.dead = heeded, dead
        return source

    def add(self, source: SourceRecord, row: RolloutRow) -> None:
        """Take in the newest record's source, unless its own reward is one that isn't kept."""
        if not self.limits.takes(row.reward):
            self.evicted[Eviction.REWARD] += source.size
            return
        kin = self.kin.setdefault(source.group, [])
        source.group = kin[0].group if kin else source.group  # one text for all
        kin.append(source)
        self.size += source.size
        if (marks := self.early.pop(row.offset, None)) is not None:
            for mark in marks.elements():
                self._mark(source, mark)
        self.sources.append(source)
        self.live.add(source)
        self.limits.add(source, row)
        self._make_room(row)

    def _make_room(self, row: RolloutRow) -> None:
        """That record came: what is above a limit leaves, the oldest first."""
        for offset in self.limits.aged(row):
            self._evict(self.sources[offset], Eviction.AGE)
        for offset in self.limits.crowded(row):
            self._evict_first(self.sources[offset], Eviction.ENV_SHARE)
        while self.size > self.capacity and (oldest := self.sources.oldest) is not None:
            self._evict_first(oldest, Eviction.CAPACITY)

    def _evict_first(self, source: SourceRecord, why: Eviction) -> None:
        """Drop the first candidate of a source, and the source with the last of them."""
        if source.size == 1:
            self._evict(source, why)
            return
        self.candidates(source).pop(0)
        self.live.look_again(source)
        self.limits.shrink(source, 1)
        self.size -= 1
        self.evicted[why] += 1

    def _evict(self, source: SourceRecord, why: Eviction) -> None:
        self.size -= source.size
        self.evicted[why] += source.size
        self.limits.remove(source)
        self.live.remove(source)
        self.sources.remove(source.offset)
        if left := [other for other in self.kin[source.group] if other is not source]:
            self.kin[source.group] = left
        else:
            del self.kin[source.group]
        self.freed |= self.waiting.pop(source.offset, set())
        if self.sources.is_sparse:
            self.sources.compact()
            self.live.renumber()

    @property
    def oldest(self) -> int:
        """Offset of the oldest source; 0 without any."""
        oldest = self.sources.oldest
        return 0 if oldest is None else oldest.offset

    def annotate(self, row: AnnotationRow) -> bool:
        """A late reward: False if it changes no source. One that isn't kept takes every record of that attempt away,
        whether it stands or not; another one is told to the record that stands."""
        told = [
            source
            for source in self.kin.get(row.group, ())
            if (source.offset < 0) == (row.offset < 0)
            and (source.member, source.attempt, source.like.group_size) == (row.member, row.attempt, row.group_size)
        ]
        if not self.limits.takes(row.reward):
            for source in told:
                self._evict(source, Eviction.REWARD)
            return bool(told)
        news = [source for source in told if source.heeded and row.id not in source.notes]
        for source in news:
            source.notes |= {row.id}
            source.reward = row.reward
            self.live.look_again(source)
        return bool(news)

    def standing(self, group: str) -> int | None:
        """Offset of the newest record here that stands in that group, or did."""
        return next((source.offset for source in reversed(self.kin.get(group, ())) if source.heeded), None)

    def supersede(self, group: str, member: int, attempt: int) -> None:
        """A record of that attempt is on the log: sources of lower ones are dead places."""
        for source in self.kin.get(group, ()):
            if source.heeded and source.member == member and source.attempt < attempt:
                self._kill(source)

    def end(self, group: str, as_of: int) -> None:
        """The group has ended: sources at or above `as_of` came too late, and are dead places."""
        for source in self.kin.get(group, ()):
            if source.heeded and source.offset >= as_of:
                source.reward, source.notes, source.heeded = source.row.reward, NOTHING_TOLD, False
                self._kill(source)

    def forget(self, group: str) -> None:
        """Nothing is said of that group any more."""
        self.end(group, 0)

    def _kill(self, source: SourceRecord) -> None:
        source.dead = True
        self.live.look_again(source)

    def mark(self, mark: Mark, next_offset: int) -> None:
        """Count a draw or a refusal; `next_offset` is that of the fold of `rollouts`, so the record may come later."""
        if (source := self.sources.get(mark.offset)) is not None:
            self._mark(source, mark)
            self.live.look_again(source)
        elif mark.offset >= next_offset:
            if mark.offset not in self.early:
                self.early[mark.offset] = Counter()
                heappush(self.awaited, mark.offset)
            self.early[mark.offset][mark] += 1

    def _mark(self, source: SourceRecord, mark: Mark) -> None:
        for candidate in self.candidates(source):
            candidate.marked(mark)

    def settle(self, next_offset: int) -> None:
        """Forget marks of records that were folded and aren't sources."""
        while self.awaited and self.awaited[0] < next_offset:
            self.early.pop(heappop(self.awaited), None)

    def candidates(self, source: SourceRecord) -> list[Candidate]:
        """The candidates of a source of the pool, to be changed: from now on it keeps them."""
        if source.made is None:
            source.made = self.screening.candidates(source)
        return source.made

    def candidate(self, key: CandidateKey) -> Candidate | None:
        """That candidate, to be changed."""
        source = self.sources.get(key[0])
        return None if source is None else next((one for one in self.candidates(source) if one.key == key), None)

    def part(self) -> None:
        """What comes from now on is of another log, whose groups may have the same names: nothing that it says concerns
        the sources that are here."""
        for source in self.sources.ordered():
            source.notes, source.heeded = NOTHING_TOLD, False

    # what isn't in the fold

    def take(self, rank: int) -> tuple[SourceRecord, Candidate]:
        """The live candidate at that rank, of which a draw is under way from now on."""
        source, side, within = self.live.find(rank)
        candidate = self.screening.on(source, side, self.candidates(source))[within]
        candidate.in_flight += 1
        self.live.look_again(source)
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
        if (source := self.sources.get(candidate.offset)) is not None:
            self.live.look_again(source)

    def __iter__(self) -> Iterator[tuple[SourceRecord, Candidate]]:
        """All candidates in the order (offset, node), live or not."""
        for source in self.sources.ordered():
            for candidate in self.screening.candidates(source):
                yield source, candidate
