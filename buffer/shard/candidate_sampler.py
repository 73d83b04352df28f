"""Draws under way: chosen and not yet rendered, or emitted and not yet read back from `seeds` (design/buffer#draws).

Guarantees: draw `k` is a function of the fold at the offsets that it names, the settings, and the draws before `k`;
seeds leave in the order of their numbers, so whoever reads `seeds` knows every draw before. A draw of which no seed can
be made is void with all after it, and its number isn't used again: its candidate is discarded, but stays among those
that are drawn from, so that whoever draws `k` again needn't know what was void. Leaves out: payloads and the clock.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from msgspec import Struct

from rolloutlog.buffer.folding.fold import Fold
from rolloutlog.buffer.sources.candidates import Candidate, CandidateKey
from rolloutlog.buffer.sources.draws import allowed, share
from rolloutlog.buffer.sources.packed_source import PackedSource
from rolloutlog.buffer.sources.pool import Pool
from rolloutlog.contract.events.seeds import LAST_DRAW, Draw
from rolloutlog.contract.settings import Settings, TrainerSettings
from rolloutlog.contract.topics import Topic

MOST_QUEUED = 32
"""Draws that wait for payloads at once: it bounds memory and the size of a transaction."""


class DrawLack(StrEnum):
    """Why a shard draws nothing."""

    BEHIND = "behind"
    """It hasn't read its inputs to where they ended when its owner took over."""
    RATIO = "ratio"
    OPEN_GROUPS = "open-groups"
    CANDIDATE = "no-candidate"


class CandidateDraw(Struct, frozen=True, gc=False):
    """Draw `number` at `known` offsets and settings; `earlier` counts the draws of its candidate before it."""

    number: int
    known: Mapping[str, Any]
    source: PackedSource
    candidate: Candidate
    earlier: int

    @property
    def draw(self) -> Draw:
        """What its seed says of it."""
        return Draw(number=self.number, **self.known)

    @property
    def key(self) -> CandidateKey:
        """Which candidate it is."""
        return self.candidate.key


@dataclass(slots=True)
class CandidateSampler:
    """`queue` waits for payloads, oldest number first; `emitted` waits to be folded. At so many changes of the fold,
    `dry_at`, no candidate was left. `trainer` bounds when is drawn, and may change; what is drawn doesn't depend on it.
    """

    settings: Settings
    digest: str
    trainer: TrainerSettings
    queue: list[CandidateDraw] = field(default_factory=list[CandidateDraw])
    emitted: dict[int, Candidate] = field(default_factory=dict[int, Candidate])
    next_number: int = 0
    dry_at: int = -1

    def sample(self, fold: Fold) -> None:
        """Draw as many as the bounds allow now."""
        count = min(self._allowed(fold), MOST_QUEUED - len(self.queue))
        if count <= 0 or fold.changes == self.dry_at:
            return
        at = fold.next_offsets
        known = {
            "rollouts": at[Topic.ROLLOUTS],
            "seeds": at[Topic.SEEDS],
            "group_events": at[Topic.GROUP_EVENTS],
            "settings": self.digest,
        }
        for _ in range(count):
            drawn = self._next(fold, known)
            if drawn is None:
                self.dry_at = fold.changes
                return
            self.queue.append(drawn)

    def _next(self, fold: Fold, known: Mapping[str, Any]) -> CandidateDraw | None:
        """The next draw that isn't void from the start; None where all that could be drawn is discarded."""
        if fold.pool.live.is_dry:
            return None
        number, pool = max(fold.next_draw, self.next_number), fold.pool
        while True:
            source, candidate = pool.take(pool.live.drawn(self.settings.buffer.salt, fold.partition, number))
            if not candidate.discarded:
                break
            pool.release(candidate)
            number += 1
        if number >= LAST_DRAW:
            pool.release(candidate)
            return None
        self.next_number = number + 1
        return CandidateDraw(number, known, source, candidate, candidate.draws + candidate.in_flight - 1)

    def lack(self, fold: Fold) -> DrawLack | None:
        """What it lacks to draw one more; None where it may, or draws are under way."""
        if self.queue or self.emitted:
            return None
        if fold.pool.live.is_dry:
            return DrawLack.CANDIDATE
        if not self._allowed(fold, most_open=LAST_DRAW):
            return DrawLack.RATIO
        return None if self._allowed(fold) else DrawLack.OPEN_GROUPS

    def _allowed(self, fold: Fold, *, most_open: int | None = None) -> int:
        """How many may be drawn now; `most_open`: were that the shard's derived part."""
        under_way = len(self.queue) + len(self.emitted)
        partitions = self.settings.topics.partitions
        part = share(self.trainer.derived_open(partitions), partitions, fold.partition)
        return allowed(
            ratio=self.settings.buffer.ratio,
            resolved=fold.groups.resolved,
            drawn=fold.drawn + under_way,
            most_open=part if most_open is None else most_open,
            open_now=fold.groups.open_derived + under_way,
        )

    def mark_emitted(self, drawn: CandidateDraw) -> None:
        """The first of the queue was rendered and is emitted."""
        self.queue.remove(drawn)
        self.emitted[drawn.number] = drawn.candidate

    def clear(self, pool: Pool) -> None:
        """No seed can be made of one in the queue: all are drawn anew, with new numbers."""
        for drawn in self.queue:
            pool.release(drawn.candidate)
        self.queue.clear()
        self.dry_at = -1

    def acknowledge(self, draw: Draw, pool: Pool) -> None:
        """A seed was read back."""
        if (candidate := self.emitted.pop(draw.number, None)) is not None:
            pool.release(candidate)
