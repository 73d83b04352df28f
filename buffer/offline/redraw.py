"""Every derived seed of a partition drawn again from the index, at the offsets that it records (design/buffer#draws).

Guarantees: what a seed says of its draw is believed only so far as the fold at those offsets, the settings and the
number give the same candidate; draws under way at the time count by what the log says of them. Leaves out: seeds that
no shard has folded yet, and comparing what was rendered, for which the payload is read (`rolloutlog.consumers`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, field
from enum import StrEnum

from rolloutlog.buffer.index.rows import Row, SeedRow
from rolloutlog.buffer.offline.cut import Coverage, Cut
from rolloutlog.buffer.offline.past_fold import PastFold
from rolloutlog.buffer.shard.candidate_sampler import CandidateDraw
from rolloutlog.buffer.sources.candidates import CandidateKey
from rolloutlog.contract.events.seeds import Draw, Seed
from rolloutlog.contract.settings import Settings


class Finding(StrEnum):
    """What drawing a seed again came to."""

    EQUAL = "equal"
    CUT = "cut"
    GONE = "gone"
    SETTINGS = "settings"
    ORDER = "order"
    CANDIDATE = "candidate"
    ID = "id"
    RENDERED = "rendered"


FINDINGS = {
    Finding.EQUAL: "the candidate, the id and every byte are the same",
    Finding.CUT: "rows that its fold needs were deleted, so it can't be drawn again",
    Finding.GONE: "the candidate is the same; its source's payload was deleted, so it can't be rendered again",
    Finding.SETTINGS: "it was drawn under other settings than the run's",
    Finding.ORDER: "its offsets lie before those of the draw before it, or above what a shard had folded",
    Finding.CANDIDATE: "another candidate, or none, is drawn at its offsets",
    Finding.ID: "the same candidate gives another id",
    Finding.RENDERED: "the same candidate gives other bytes",
}
UNDECIDED = frozenset({Finding.CUT, Finding.GONE})


@dataclass(slots=True, frozen=True)
class Redrawn:
    """A seed as its row says it, and what is drawn in its place; None where `finding` says why that isn't known, or
    nothing is."""

    row: SeedRow
    drawn: CandidateDraw | None
    finding: Finding


@dataclass(slots=True)
class Redraw:
    """Draws again what the rows of one partition say; `digest` is that of the settings."""

    partition: int
    settings: Settings
    digest: str
    past: PastFold
    coverage: Coverage
    due: deque[tuple[SeedRow, Draw]] = field(default_factory=deque[tuple[SeedRow, Draw]])
    under_way: list[tuple[SeedRow, Draw, CandidateKey]] = field(
        default_factory=list[tuple[SeedRow, Draw, CandidateKey]]
    )

    @classmethod
    def of(cls, partition: int, settings: Settings, first: int = 0) -> Redraw:
        """For a partition whose index begins at `first`; 0 where none of its rows was deleted."""
        past = PastFold.empty(partition, settings.buffer)
        return cls(partition, settings, settings.digest, past, Coverage(first))

    def read(self, rows: Iterable[Row]) -> Iterator[Redrawn]:
        """The seeds that can be drawn again now; rows come in the order of the index."""
        for row in rows:
            self.coverage.learn(row)
            self.past.offer(row)
            if isinstance(row, SeedRow) and row.seed.draw is not None and not row.seed.asks:
                self.due.append((row, row.seed.draw))
        while self.due and self._is_folded(*self.due[0]):
            yield self._again(*self.due.popleft())

    def end(self) -> Iterator[Redrawn]:
        """Those that are left when there are no more rows: behind one that names offsets which nobody folded."""
        while self.due:
            row, draw = self.due.popleft()
            known = self._is_folded(row, draw)
            yield self._again(row, draw) if known else Redrawn(row, None, Finding.ORDER)

    def _is_folded(self, row: SeedRow, draw: Draw) -> bool:
        """True where all rows below a draw's offsets were read; a seed isn't drawn after it was written."""
        return draw.seeds <= row.offset and self.past.seen.reaches(Cut.of(draw))

    def _again(self, row: SeedRow, draw: Draw) -> Redrawn:
        cut, said = Cut.of(draw), key_of_seed(row.seed)
        in_flight = self._in_flight(draw)
        if said is not None:
            self.under_way.append((row, draw, said))
        if draw.settings != self.digest:
            return Redrawn(row, None, Finding.SETTINGS)
        if not cut.reaches(self.past.cut):
            return Redrawn(row, None, Finding.ORDER)
        self.past.advance(cut)
        if not self.coverage.covers(cut):
            return Redrawn(row, None, Finding.CUT)
        with self._held(in_flight):
            drawn = self._drawn(draw)
        is_same = drawn is not None and drawn.key == said and drawn.candidate.point.kind == _kind(row.seed)
        return Redrawn(row, drawn, Finding.EQUAL if is_same else Finding.CANDIDATE)

    def _in_flight(self, draw: Draw) -> list[CandidateKey]:
        """Draws before this one whose seeds weren't read back when it was made."""
        self.under_way = [each for each in self.under_way if each[0].offset >= draw.seeds]
        return [key for _, earlier, key in self.under_way if earlier.number < draw.number]

    @contextmanager
    def _held(self, in_flight: Iterable[CandidateKey]) -> Generator[None]:
        """Meanwhile these draws are under way."""
        pool = self.past.fold.pool
        held = [candidate for key in in_flight if (candidate := pool.candidate(key)) is not None]
        for candidate in held:
            pool.hold(candidate)
        yield
        for candidate in held:
            pool.release(candidate)

    def _drawn(self, draw: Draw) -> CandidateDraw | None:
        """What it is now, since the fold goes on."""
        pool = self.past.fold.pool
        if not len(pool.live):
            return None
        candidate = pool.live[pool.live.drawn(self.settings.buffer.salt, self.partition, draw.number)]
        earlier = candidate.draws + candidate.in_flight
        known = draw.model_dump(exclude={"number"})
        return CandidateDraw(draw.number, known, pool.sources[candidate.offset].packed, copy(candidate), earlier)


def key_of_seed(seed: Seed) -> CandidateKey | None:
    """The candidate that a derived seed says it was drawn as; None where it says none."""
    if seed.source is None or seed.anchor is None or seed.derivation is None:
        return None
    return seed.source.where.place, seed.derivation, seed.anchor.node


def _kind(seed: Seed) -> str | None:
    return None if seed.anchor is None else seed.anchor.kind
