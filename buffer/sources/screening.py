"""From a record's row to its candidates, and which of those may be drawn now (design/buffer#selection).

Guarantees: what a record offers depends on its row and the settings alone; what may be drawn depends on draws,
refusals and the newest reward as well. Candidates are counted when a record is folded and made when one is looked at.
Leaves out: the rules themselves (`selection`), and which candidate is drawn (`draws`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from rolloutlog.buffer.derivations.protocol import Balanced, right_of
from rolloutlog.buffer.index.packed_anchors import places_of
from rolloutlog.buffer.index.rollout_row import RolloutRow
from rolloutlog.buffer.index.skip import Skip
from rolloutlog.buffer.sources.candidates import Candidate, SourceRecord
from rolloutlog.buffer.sources.packed_row import like_row, shared_facts, unpacked_places
from rolloutlog.buffer.sources.selection import in_band, skip_of
from rolloutlog.buffer.sources.source_rule import SourceRule
from rolloutlog.contract.ids import rollout_id
from rolloutlog.contract.settings import BufferSettings

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
    """By the settings of one buffer. `balanced` are the names of the derivations that are; `sides` how many there
    are."""

    def __init__(self, settings: BufferSettings) -> None:
        self._salt = settings.salt
        self._rules = [SourceRule(own, settings.seq_len) for own in settings.derivations]
        self._place = {own.name: place for place, own in enumerate(settings.derivations)}
        self._kinds: dict[object, _Kind] = {}
        self._tuples: dict[tuple[int, ...], tuple[int, ...]] = {}
        balances = [(own.name, own.derive) for own in settings.derivations if isinstance(own.derive, Balanced)]
        self.balanced = [name for name, _ in balances]
        self.sides = FIRST_BALANCED + 2 * len(balances)
        self.none_live = (0,) * (2 * self.sides)
        self._balances = {
            self._place[name]: (FIRST_BALANCED + 2 * number, derive) for number, (name, derive) in enumerate(balances)
        }

    # what a record offers

    def source_of(self, row: RolloutRow, skips: Skips) -> SourceRecord | None:
        """The source that a record is, unless the derivations find nothing in it, which is counted in `skips`."""
        kind = self._kind_of(row)
        places = places_of(row.packed)
        counts = [0] * len(self._rules)
        for place, skip in enumerate(kind.skips):
            rule = self._rules[place]
            found = skip or rule.count(places, row.snapshots)
            if isinstance(found, Skip):
                skips[rule.settings.name, found] += 1
                continue
            counts[place] = found
            if row.reward is not None and not in_band(row.reward, rule.settings.select):
                skips[rule.settings.name, Skip.SOURCE_REWARD] += 1  # it keeps its places: a later reward may fit
        return SourceRecord.of(row, kind.like, self._same(tuple(counts))) if any(counts) else None

    def _kind_of(self, row: RolloutRow) -> _Kind:
        facts = shared_facts(row)
        if (known := self._kinds.get(facts)) is None:
            if len(self._kinds) >= MOST_KINDS:
                self._kinds.clear()
            known = _Kind(like_row(row), tuple(skip_of(row, rule.settings) for rule in self._rules))
            self._kinds[facts] = known
        return known

    def _same(self, numbers: tuple[int, ...]) -> tuple[int, ...]:
        """One tuple for all that are equal."""
        if len(self._tuples) >= MOST_KINDS:
            self._tuples.clear()
        return self._tuples.setdefault(numbers, numbers)

    def candidates(self, source: SourceRecord) -> list[Candidate]:
        """Those that are left of a source, in their order."""
        return self._made(source) if source.made is None else source.made

    def _made(self, source: SourceRecord) -> list[Candidate]:
        places, snapshots = unpacked_places(source.packed)
        made: list[Candidate] = []
        for rule, count in zip(self._rules, source.counts, strict=True):
            points = rule.points(places, snapshots) if count else Skip.NO_SEED
            if not isinstance(points, Skip):
                chosen = rule.chosen(points, self._salt, rollout_id(source.group, source.member))
                made += [Candidate(source.offset, rule.settings.name, point) for point in chosen]
        made.sort(key=lambda candidate: candidate.order)
        return made

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
            for candidate in source.made:
                if (side := self._side_of(source, candidate)) is not None:
                    numbers[side] += 1
                    numbers[self.sides + side] += candidate.discarded
        return self._same(tuple(numbers))

    def on(self, source: SourceRecord, side: int, candidates: Iterable[Candidate]) -> list[Candidate]:
        """Those of a source's candidates that may be drawn, on that side: that aren't dead, exhausted or refused, and
        whose reward fits. Draws in flight count."""
        return [candidate for candidate in candidates if self._side_of(source, candidate) == side]

    def _side_of(self, source: SourceRecord, candidate: Candidate) -> int | None:
        place = self._place[candidate.derivation]
        drawn = candidate.draws + candidate.in_flight
        if candidate.refused or drawn >= self._rules[place].settings.max_draws:
            return None
        return self._side(source, place)

    def _side(self, source: SourceRecord, place: int) -> int | None:
        """The side of the candidates that one derivation finds in a source; None where its reward is on none."""
        reward = source.reward
        if source.dead or not in_band(reward, self._rules[place].settings.select):
            return None
        if (balance := self._balances.get(place)) is None:
            return PLAIN
        right, derive = balance
        was_right = None if reward is None else right_of(derive, reward)
        return None if was_right is None else right + (not was_right)
