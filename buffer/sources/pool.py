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
from rolloutlog.buffer.sources.candidates import Candidate, CandidateKey, Mark
from rolloutlog.buffer.sources.limits import Eviction, Limits
from rolloutlog.buffer.sources.live import LiveCandidates
from rolloutlog.buffer.sources.packed_source import PackedSource
from rolloutlog.buffer.sources.screening import Screening, Skips
from rolloutlog.buffer.sources.source_columns import NOTHING_TOLD
from rolloutlog.buffer.sources.source_record import SourceRecord
from rolloutlog.buffer.sources.source_table import SourceTable
from rolloutlog.contract.handles import BEFORE
from rolloutlog.contract.settings import BufferSettings
from rolloutlog.contract.vocabulary import RejectReason
from rolloutlog.contract.wire.rejection import Rejected


@dataclass(slots=True)
class Pool:
    """At most `capacity` candidates, of the newest sources, none older than `floor`, an offset on `rollouts`.

    `early` holds marks of records that aren't folded yet, the lowest of which is the first of `awaited`. `live` follows
    every change, of the fold and of what is in flight; `evicted` counts the candidates that weren't kept. `waiting` are
    groups by the source from which they were drawn, which must leave before they can be forgotten; `freed` are those of
    which it did, or a record of their own that `holds` named. `dropped` has how many candidates are left of each source
    that gave some away, while somebody asks.
    """

    capacity: int
    screening: Screening = field(compare=False)
    limits: Limits = field(compare=False)
    sources: SourceTable
    live: LiveCandidates = field(compare=False)
    floor: int = field(default=-BEFORE, compare=False)
    early: dict[int, Counter[Mark]] = field(default_factory=dict[int, "Counter[Mark]"])
    awaited: list[int] = field(default_factory=list[int], compare=False)
    size: int = 0
    waiting: dict[int, set[str]] = field(default_factory=dict[int, "set[str]"], compare=False)
    freed: set[str] = field(default_factory=set[str], compare=False)
    evicted: Counter[Eviction] = field(default_factory=Counter[Eviction], compare=False)
    dropped: dict[int, int] | None = field(default=None, compare=False)

    @classmethod
    def empty(cls, settings: BufferSettings) -> Pool:
        """A pool before its first source."""
        screening, sources = Screening(settings), SourceTable()
        limits = Limits(settings.keep, settings.capacity)
        return cls(settings.capacity, screening, limits, sources, LiveCandidates(sources, screening))

    def add(
        self,
        row: RolloutRow,
        skips: Skips,
        *,
        heeded: bool = True,
        dead: bool = False,
        reward: float | None = None,
        notes: frozenset[str] = NOTHING_TOLD,
    ) -> None:
        """Take in the newest record, unless it is no source, or older than all that were kept, or its own reward is one
        that isn't kept. `notes` said its `reward` before. Raises Rejected for one that isn't the newest, which only a
        damaged index has."""
        if (slots := self.sources.slot_count) and row.offset <= self.sources.offset(slots - 1):
            raise Rejected(RejectReason.SHAPE, f"a row of the record {row.offset} comes after one of a later record")
        if row.offset < self.floor or (offer := self.screening.offer_of(row, skips)) is None:
            return
        if not self.limits.takes(row.reward):
            self.evicted[Eviction.REWARD] += offer.size
            return
        live = self.screening.none_live if dead else self.screening.live_of(offer, row.reward)
        slot = self.sources.append(row, offer, live, dead=dead, heeded=heeded)
        self.size += offer.size
        if notes or row.offset in self.early:
            self._say_early(slot, reward, notes)
        if self.limits.is_set:
            self.limits.add(SourceRecord(self.sources, slot), row)
            self._limit(row)
        while self.size > self.capacity and (oldest := self.sources.oldest) is not None:
            self._evict_first(oldest, Eviction.CAPACITY)

    def _say_early(self, slot: int, reward: float | None, notes: frozenset[str]) -> None:
        """What was said of the newest record before it came."""
        if notes:
            self.sources.tell(slot, notes, reward)
        for mark in self.early.pop(self.sources.offset(slot), Counter[Mark]()).elements():
            self._mark(slot, mark)
        self.live.look_again(slot)

    def _limit(self, row: RolloutRow) -> None:
        """That record came: what is above a limit leaves, the oldest first."""
        for offset in self.limits.aged(row):
            self._evict(self.sources[offset].slot, Eviction.AGE)
        for offset in self.limits.crowded(row):
            self._evict_first(self.sources[offset].slot, Eviction.ENV_SHARE)

    def _evict_first(self, slot: int, why: Eviction) -> None:
        """Drop the first candidate of a source, and the source with the last of them."""
        if self.sources.size(slot) == 1:
            self._evict(slot, why)
            return
        self._candidates(slot).pop(0)
        self.live.look_again(slot)
        self.limits.shrink(SourceRecord(self.sources, slot), 1)
        self.size -= 1
        self.evicted[why] += 1
        if self.dropped is not None:
            self.dropped[self.sources.offset(slot)] = self.sources.size(slot)

    def _evict(self, slot: int, why: Eviction) -> None:
        sources, size = self.sources, self.sources.size(slot)
        offset, group = sources.offset(slot), sources.group(slot)
        self.size -= size
        self.evicted[why] += size
        if self.dropped is not None:
            self.dropped[offset] = 0
        if self.limits.is_set:
            self.limits.remove(SourceRecord(sources, slot))
        self.live.remove(slot)
        if sources.is_watched(slot):
            self.freed.add(group)
        sources.remove(slot)
        self.freed |= self.waiting.pop(offset, set())
        if sources.is_sparse:
            sources.compact()
            self.live.renumber()

    def keep(self, offset: int, left: int) -> None:
        """So many candidates are left of a source, the last ones, if it is here."""
        while (slot := self.sources.slot_of(offset)) is not None and self.sources.size(slot) > left:
            self._evict_first(slot, Eviction.CAPACITY)

    @property
    def oldest(self) -> int:
        """Offset of the oldest source; 0 without any."""
        oldest = self.sources.oldest
        return 0 if oldest is None else self.sources.offset(oldest)

    def annotate(self, row: AnnotationRow) -> bool:
        """A late reward: False if it changes no source. One that isn't kept takes every record of that attempt away,
        whether it stands or not; another one is told to the record that stands."""
        told = [self.sources.offset(slot) for slot in self.sources.kin(row.group) if self._is_of(slot, row)]
        if not self.limits.takes(row.reward):
            for offset in reversed(told):
                self._evict(self.sources[offset].slot, Eviction.REWARD)
            return bool(told)
        news = [offset for offset in told if self._tell(self.sources[offset].slot, row)]
        return bool(news)

    def _is_of(self, slot: int, row: AnnotationRow) -> bool:
        own, size = self.sources.own(slot), self.sources.offers[slot].like.group_size
        is_there = (self.sources.offset(slot) < 0) == (row.offset < 0)
        return is_there and (own.member, own.attempt, size) == (row.member, row.attempt, row.group_size)

    def _tell(self, slot: int, row: AnnotationRow) -> bool:
        known = self.sources.told.get(self.sources.offset(slot))
        notes = NOTHING_TOLD if known is None else known.notes
        if row.id in notes or not self.sources.is_heeded(slot):
            return False
        self.sources.tell(slot, notes | {row.id}, row.reward)
        self.live.look_again(slot)
        return True

    def holds(self, group: str) -> bool:
        """True while a record is here that stands in that group, or did; when the newest leaves, the group is freed."""
        standing = next((slot for slot in self.sources.kin(group) if self.sources.is_heeded(slot)), None)
        if standing is not None:
            self.sources.watch(standing)
        return standing is not None

    def supersede(self, group: str, member: int, attempt: int) -> None:
        """A record of that attempt is on the log: sources of lower ones are dead places."""
        for slot in self.sources.kin(group):
            if self.sources.is_heeded(slot):
                own = self.sources.own(slot)
                if own.member == member and own.attempt < attempt:
                    self._kill(slot)

    def end(self, group: str, as_of: int) -> None:
        """The group has ended: sources at or above `as_of` came too late, and are dead places."""
        for slot in self.sources.kin(group):
            if self.sources.offset(slot) < as_of:
                return  # the newest come first
            if self.sources.is_heeded(slot):
                self.sources.untell(slot)
                self.sources.unheed(slot)
                self._kill(slot)

    def forget(self, group: str) -> None:
        """Nothing is said of that group any more."""
        self.end(group, 0)

    def _kill(self, slot: int) -> None:
        self.sources.kill(slot)
        self.live.look_again(slot)

    def mark(self, mark: Mark, next_offset: int) -> None:
        """Count a draw or a refusal; `next_offset` is that of the fold of `rollouts`, so the record may come later."""
        if (slot := self.sources.slot_of(mark.offset)) is not None:
            self._mark(slot, mark)
            self.live.look_again(slot)
        elif mark.offset >= next_offset:
            if mark.offset not in self.early:
                self.early[mark.offset] = Counter()
                heappush(self.awaited, mark.offset)
            said = self.early[mark.offset]
            said[mark] = 1 if mark.refused else said[mark] + 1  # a refusal may be read twice by a restore

    def _mark(self, slot: int, mark: Mark) -> None:
        for candidate in self._candidates(slot):
            candidate.marked(mark)

    def settle(self, next_offset: int) -> None:
        """Forget marks of records that were folded and aren't sources."""
        while self.awaited and self.awaited[0] < next_offset:
            self.early.pop(heappop(self.awaited), None)

    def _candidates(self, slot: int) -> list[Candidate]:
        """The candidates of a source, to be changed: from now on it keeps them."""
        made = self.sources.made.get(self.sources.offset(slot))
        return self._keep(slot, self.sources.packed(slot)) if made is None else made

    def _keep(self, slot: int, source: PackedSource) -> list[Candidate]:
        made = self.screening.new_candidates(self.sources.offers[slot], source)
        self.sources.made[source.offset] = made
        return made

    def candidates(self, offset: int) -> list[Candidate]:
        """The candidates that are left of a source, to look at."""
        return self.screening.candidates(self.sources, self.sources[offset].slot)

    def candidate(self, key: CandidateKey) -> Candidate | None:
        """That candidate, to be changed."""
        slot = self.sources.slot_of(key[0])
        return None if slot is None else next((one for one in self._candidates(slot) if one.key == key), None)

    def part(self) -> None:
        """What comes from now on is of another log, whose groups may have the same names: nothing that it says concerns
        the sources that are here."""
        for slot in self.sources.slots():
            self.sources.void_notes(slot)
            self.sources.unheed(slot)

    # what isn't in the fold

    def take(self, rank: int) -> tuple[PackedSource, Candidate]:
        """The live candidate at that rank, of which a draw is under way from now on, and its source as it is now."""
        slot, side, within = self.live.take(rank)
        source = self.sources.packed(slot)
        made = self.sources.made.get(source.offset) or self._keep(slot, source)
        candidate = made[0] if len(made) == 1 else self.screening.on(self.sources, slot, side)[within]
        candidate.in_flight += 1
        if candidate.discarded or not self.screening.is_exhausted(candidate):
            self.live.look_again(slot)
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
        if (slot := self.sources.slot_of(candidate.offset)) is not None:
            self.live.look_again(slot)

    def __iter__(self) -> Iterator[tuple[SourceRecord, Candidate]]:
        """All candidates in the order (offset, node), live or not."""
        for slot in self.sources.slots():
            for candidate in self.screening.candidates(self.sources, slot):
                yield SourceRecord(self.sources, slot), candidate
