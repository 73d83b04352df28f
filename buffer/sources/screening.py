"""From a record's row to its candidates, and which of those may be drawn now (design/buffer#selection).

Guarantees: what a record offers depends on its row and the settings alone; what may be drawn depends on draws,
refusals and the newest reward as well. Candidates are counted when a record is folded and made when one is looked at.
Leaves out: the rules themselves (`selection`), and which candidate is drawn (`draws`).
"""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from rolloutlog.buffer.derivations.catalogue import derivation_of
from rolloutlog.buffer.derivations.protocol import AnchorPoint, Balanced
from rolloutlog.buffer.index.rollout_row import RolloutRow
from rolloutlog.buffer.index.skip import Skip
from rolloutlog.buffer.sources.candidates import Candidate, SourceRecord
from rolloutlog.buffer.sources.draws import pick_some
from rolloutlog.buffer.sources.packed_row import like_row, shared_facts
from rolloutlog.buffer.sources.selection import in_band, points_for, skip_of
from rolloutlog.contract.ids import rollout_id
from rolloutlog.contract.settings import BufferSettings, DerivationSettings

Skips = Counter[tuple[str, Skip]]
"""How many records each derivation skipped, by reason (decisions/replay#26)."""
PLAIN, FIRST_BALANCED = 0, 1
"""Sides: of all derivations that aren't balanced; then right and wrong ones of each that is."""
MOST_KINDS = 4096
"""Sets of shared facts that are remembered; a source keeps its own."""


class _Kind(NamedTuple):
    """Records that share all facts by which a derivation takes them or not."""

    like: RolloutRow
    skips: tuple[Skip | None, ...]


class Screening:
    """By the settings of one buffer. `balanced` are the names of the derivations that are."""

    def __init__(self, settings: BufferSettings) -> None:
        self._settings = settings
        self._own = settings.derivations
        self._kinds: dict[object, _Kind] = {}
        self._tuples: dict[tuple[int, ...], tuple[int, ...]] = {}
        self.balanced = [each.name for each in self._own if isinstance(each.derive, Balanced)]
        self._place = {own.name: place for place, own in enumerate(self._own)}
        self.sides = FIRST_BALANCED + 2 * len(self.balanced)
        self.none_live = (0,) * (2 * self.sides)
        self._first_side = [
            FIRST_BALANCED + 2 * self.balanced.index(each.name) if each.name in self.balanced else PLAIN
            for each in self._own
        ]

    # what a record offers

    def source_of(self, row: RolloutRow, skips: Skips) -> SourceRecord | None:
        """The source that a record is, unless the derivations find nothing in it, which is counted in `skips`."""
        kind = self._kind_of(row)
        points = row.anchors
        counts = tuple(
            self._counted(row, points, own, skip, skips) for own, skip in zip(self._own, kind.skips, strict=True)
        )
        return SourceRecord.of(row, kind.like, self._same(counts)) if any(counts) else None

    def _kind_of(self, row: RolloutRow) -> _Kind:
        facts = shared_facts(row)
        if (known := self._kinds.get(facts)) is None:
            if len(self._kinds) >= MOST_KINDS:
                self._kinds.clear()
            known = _Kind(like_row(row), tuple(skip_of(row, own) for own in self._own))
            self._kinds[facts] = known
        return known

    def _same(self, numbers: tuple[int, ...]) -> tuple[int, ...]:
        """One tuple for all that are equal."""
        if len(self._tuples) >= MOST_KINDS:
            self._tuples.clear()
        return self._tuples.setdefault(numbers, numbers)

    def _counted(
        self, row: RolloutRow, points: list[AnchorPoint], own: DerivationSettings, skip: Skip | None, skips: Skips
    ) -> int:
        found = skip or points_for(row, points, own, self._settings.seq_len)
        if isinstance(found, Skip):
            skips[own.name, found] += 1
            return 0
        if row.reward is not None and not in_band(row.reward, own.select):
            skips[own.name, Skip.SOURCE_REWARD] += 1  # it keeps its places: a later reward may lie in the band
        count = len({point.node for point in found}) if len(found) > 1 else 1
        most = derivation_of(own.derive).most_anchors
        return count if most is None else min(count, most)

    def candidates(self, source: SourceRecord) -> list[Candidate]:
        """Those that are left of a source, in their order."""
        return self._made(source) if source.made is None else source.made

    def _made(self, source: SourceRecord) -> list[Candidate]:
        row = source.row
        points = row.anchors
        made = [
            Candidate(source.offset, own.name, point)
            for own, count in zip(self._own, source.counts, strict=True)
            if count
            for point in self._points(row, points, own)
        ]
        return sorted(made, key=lambda candidate: candidate.order) if len(made) > 1 else made

    def _points(self, row: RolloutRow, points: list[AnchorPoint], own: DerivationSettings) -> list[AnchorPoint]:
        found = points_for(row, points, own, self._settings.seq_len)
        if isinstance(found, Skip):
            return []
        most = derivation_of(own.derive).most_anchors
        return pick_some(_one_a_node(found), self._settings.salt, rollout_id(row.group, row.member), most)

    # what may be drawn now

    def live(self, source: SourceRecord) -> tuple[int, ...]:
        """How many of its candidates may be drawn by side, then how many of these are discarded."""
        if source.dead:
            return self.none_live
        numbers = [0] * (2 * self.sides)
        if source.made is None:
            for place, count in enumerate(source.counts):
                if count and (side := self._side(source, place)) is not None:
                    numbers[side] += count
        else:
            for candidate, side in zip(source.made, self._sides_of(source), strict=True):
                if side is not None:
                    numbers[side] += 1
                    numbers[self.sides + side] += candidate.discarded
        return self._same(tuple(numbers))

    def places_on(self, source: SourceRecord, side: int) -> list[int]:
        """Which of the candidates that are left of a source may be drawn, on that side."""
        return [place for place, its in enumerate(self._sides_of(source)) if its == side]

    def _sides_of(self, source: SourceRecord) -> list[int | None]:
        """The side of each candidate; None where it may not be drawn: it is dead, exhausted or refused, or the reward
        doesn't fit. Draws in flight count."""
        return [self._side_of(source, each) for each in self.candidates(source)]

    def _side_of(self, source: SourceRecord, candidate: Candidate) -> int | None:
        place = self._place[candidate.derivation]
        if candidate.refused or candidate.draws + candidate.in_flight >= self._own[place].max_draws:
            return None
        return self._side(source, place)

    def _side(self, source: SourceRecord, place: int) -> int | None:
        """The side of the candidates that one derivation finds in a source; None where its reward is on none."""
        own, reward = self._own[place], source.reward
        if source.dead or not in_band(reward, own.select):
            return None
        if not (first := self._first_side[place]):
            return PLAIN
        if reward is None or not isinstance(own.derive, Balanced):
            return None
        return first + (not own.derive.was_right(reward))


def _one_a_node(points: list[AnchorPoint]) -> list[AnchorPoint]:
    """The first of each node: a seed names its node alone, so two would be one seed (decisions/replay#31)."""
    found: dict[int, AnchorPoint] = {}
    for point in points:
        found.setdefault(point.node, point)
    return list(found.values())
