"""From a record's row to its candidates, and which of those may be drawn now (design/buffer#selection).

Guarantees: what a record offers depends on its row and the settings alone; what may be drawn depends on draws,
refusals and the newest reward as well. Candidates are counted when a record is folded and made when one is looked at.
Leaves out: the rules themselves (`selection`), and which candidate is drawn (`draws`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from rolloutlog.buffer.derivations.protocol import AnchorPoint, Balanced, right_of
from rolloutlog.buffer.index.packed_anchors import NUMBERS, places_of
from rolloutlog.buffer.index.rollout_row import RolloutRow
from rolloutlog.buffer.index.skip import Skip
from rolloutlog.buffer.sources.candidates import Candidate
from rolloutlog.buffer.sources.offer import Offer
from rolloutlog.buffer.sources.packed_row import like_row, own_facts, shared_facts
from rolloutlog.buffer.sources.packed_source import PackedSource
from rolloutlog.buffer.sources.selection import in_band, skip_of
from rolloutlog.buffer.sources.source_rule import SourceRule
from rolloutlog.buffer.sources.source_table import SourceTable
from rolloutlog.contract.ids import rollout_id
from rolloutlog.contract.settings import BufferSettings

Skips = Counter[tuple[str, Skip]]
"""How many records each derivation skipped, by reason (decisions/replay#26)."""
MOST_KINDS = 4096
"""Sets of shared facts that are remembered, and of numbers; a source keeps its own."""
Key = tuple[str, Skip]


@dataclass(slots=True, frozen=True)
class _Kind:
    """Records that share all facts by which a derivation takes them or not. `offers` are what was found in them by the
    counts, and `by_anchors` by the kinds of their anchors and whether it is one of each, with the skips, where nothing
    else decides."""

    like: RolloutRow
    skips: tuple[Skip | None, ...]
    offers: dict[tuple[int, ...], Offer] = field(default_factory=dict[tuple[int, ...], Offer])
    by_anchors: dict[tuple[tuple[str, ...], bool], _Screened] = field(
        default_factory=dict[tuple[tuple[str, ...], bool], "_Screened"]
    )


@dataclass(slots=True, frozen=True)
class _Screened:
    """What derivations find in a record; None where none of them finds anything. `skipped` are those that don't."""

    offer: Offer | None
    skipped: tuple[Key, ...]


class Screening:
    """By the settings of one buffer. `balanced` are the names of the derivations that are. Of the `sides` the first
    `plain` ones are of those that aren't, all together or, where there are `shares`, each alone; then come right and
    wrong ones of each that is. `shares` are in the same order."""

    def __init__(self, settings: BufferSettings) -> None:
        self._salt = settings.salt
        self._rules = [SourceRule(own, settings.seq_len) for own in settings.derivations]
        self._bands = [rule for rule in self._rules if not in_band(None, rule.settings.select)]
        self._place = {own.name: place for place, own in enumerate(settings.derivations)}
        self._most_draws = {own.name: own.max_draws for own in settings.derivations}
        self._kinds: dict[object, _Kind] = {}
        self._lives: dict[tuple[tuple[int, ...], float | None], tuple[int, ...]] = {}
        balances = [(own.name, own.derive) for own in settings.derivations if isinstance(own.derive, Balanced)]
        self.balanced = [name for name, _ in balances]
        plain = [own for own in settings.derivations if not isinstance(own.derive, Balanced)]
        by_share = plain + [own for own in settings.derivations if isinstance(own.derive, Balanced)]
        self.shares = [own.share for own in by_share if own.share is not None]
        self._plain = {self._place[own.name]: at if self.shares else 0 for at, own in enumerate(plain)}
        self.plain = len(plain) if self.shares else 1
        self.sides = self.plain + 2 * len(balances)
        self.none_live = (0,) * (2 * self.sides)
        self._balances = {
            self._place[name]: (self.plain + 2 * number, derive) for number, (name, derive) in enumerate(balances)
        }

    # what a record offers

    def offer_of(self, row: RolloutRow, skips: Skips) -> Offer | None:
        """What the derivations find in a record, unless that is nothing; what they don't is counted in `skips`."""
        kind = self._kind_of(row)
        places = places_of(row.packed)
        screened = self._screened(kind, places, row.snapshots)
        for key in screened.skipped:
            skips[key] += 1
        if screened.offer is None:
            return None
        if row.reward is not None:
            for rule in self._bands:
                found = screened.offer.counts[self._place[rule.settings.name]]
                if found and not in_band(row.reward, rule.settings.select):
                    skips[rule.settings.name, Skip.SOURCE_REWARD] += 1  # it keeps its places: a later reward may fit
        return screened.offer

    def _screened(self, kind: _Kind, places: Mapping[str, Sequence[int]], snapshots: Sequence[int] | None) -> _Screened:
        names, lone = tuple(places), sum(map(len, places.values())) == NUMBERS * len(places)
        if snapshots is None and (known := kind.by_anchors.get((names, lone))) is not None:
            return known
        found = self._look(kind, places, snapshots)
        asked = [rule for rule, skip in zip(self._rules, kind.skips, strict=True) if skip is None]
        if snapshots is None and all(rule.counts_by_kinds(names, lone=lone) for rule in asked):
            if len(kind.by_anchors) >= MOST_KINDS:
                kind.by_anchors.clear()
            kind.by_anchors[names, lone] = found
        return found

    def _look(self, kind: _Kind, places: Mapping[str, Sequence[int]], snapshots: Sequence[int] | None) -> _Screened:
        counts, skipped = [0] * len(self._rules), list[Key]()
        for place, skip in enumerate(kind.skips):
            rule = self._rules[place]
            found = skip or rule.count(places, snapshots)
            if isinstance(found, Skip):
                skipped.append((rule.settings.name, found))
            else:
                counts[place] = found
        known = tuple(counts)
        if any(known) and known not in kind.offers and len(kind.offers) >= MOST_KINDS:
            kind.offers.clear()
        offer = kind.offers.setdefault(known, Offer.of(kind.like, known)) if any(known) else None
        return _Screened(offer, tuple(skipped))

    def offer_like(self, like: RolloutRow, counts: tuple[int, ...]) -> Offer:
        """What was found in a record with those shared facts. Raises ValueError for counts of other settings."""
        if len(counts) != len(self._rules):
            raise ValueError(f"counts of {len(counts)} derivations; there are {len(self._rules)}")
        kind = self._kind_of(like)
        return kind.offers.setdefault(counts, Offer.of(kind.like, counts))

    def check(self, offers: Sequence[Offer], numbers: Iterable[int], tails: Iterable[bytes | memoryview]) -> None:
        """Sources with those tails are of those offers, by their numbers. Raises ValueError."""
        kinds = [self._kind_of(offer.like) for offer in offers]
        for number, tail in zip(numbers, tails, strict=True):
            own, offer = own_facts(tail), offers[number]
            found = self._screened(kinds[number], places_of(own.packed), own.snapshots).offer
            if found is None or found.counts != offer.counts:
                raise ValueError(f"a source of {offer.size} candidates, of which its row has others")
            if own.member >= offer.like.group_size:
                raise ValueError(f"member {own.member} of {offer.like.group_size}")

    def _kind_of(self, row: RolloutRow) -> _Kind:
        facts = shared_facts(row)
        if (known := self._kinds.get(facts)) is None:
            if len(self._kinds) >= MOST_KINDS:
                self._kinds.clear()
            known = _Kind(like_row(row), tuple(skip_of(row, rule.settings) for rule in self._rules))
            self._kinds[facts] = known
        return known

    def candidates(self, sources: SourceTable, slot: int) -> list[Candidate]:
        """Those that are left of a source, in their order."""
        made = sources.made.get(sources.offset(slot))
        return self.new_candidates(sources.offers[slot], sources.packed(slot)) if made is None else made

    def new_candidates(self, offer: Offer, source: PackedSource) -> list[Candidate]:
        """All of a source, of which nobody has made any."""
        if offer.size == 1:  # as most are: its anchor is looked for when somebody asks
            rule = self._rules[offer.counts.index(1)]
            return [Candidate(source.offset, rule.settings.name, partial(self._only_point, rule, source))]
        asked = [rule for rule, count in zip(self._rules, offer.counts, strict=True) if count]
        made = [Candidate(source.offset, rule.settings.name, at) for rule in asked for at in self._points(rule, source)]
        made.sort(key=lambda candidate: candidate.order)
        return made

    def _only_point(self, rule: SourceRule, source: PackedSource) -> AnchorPoint:
        return self._points(rule, source)[0]

    def _points(self, rule: SourceRule, source: PackedSource) -> list[AnchorPoint]:
        """Where that derivation resumes a source."""
        own = own_facts(source.tail)
        points = rule.points(places_of(own.packed), own.snapshots)
        if isinstance(points, Skip):
            return []
        return rule.chosen(points, self._salt, rollout_id(source.group, own.member))

    # what may be drawn now

    def live(self, sources: SourceTable, slot: int) -> tuple[int, ...]:
        """How many of its candidates may be drawn by side, then how many of these are discarded."""
        if sources.is_dead(slot):
            return self.none_live
        made = sources.made.get(sources.offset(slot))
        if made is None:
            return self.live_of(sources.offers[slot], sources.reward(slot))
        numbers = [0] * (2 * self.sides)
        for candidate in made:
            if (side := self._side_of(sources, slot, candidate)) is not None:
                numbers[side] += 1
                numbers[self.sides + side] += candidate.discarded
        return tuple(numbers)

    def live_of(self, offer: Offer, reward: float | None) -> tuple[int, ...]:
        """The same of a source that isn't dead and of which all candidates are left."""
        if (known := self._lives.get((offer.counts, reward))) is None:
            numbers = [0] * (2 * self.sides)
            for place, count in enumerate(offer.counts):
                if count and (side := self._side(reward, place)) is not None:
                    numbers[side] += count
            if len(self._lives) >= MOST_KINDS:
                self._lives.clear()
            known = self._lives[offer.counts, reward] = tuple(numbers)
        return known

    def on(self, sources: SourceTable, slot: int, side: int) -> list[Candidate]:
        """Those of a source's candidates that may be drawn, on that side: that aren't dead, exhausted or refused, and
        whose reward fits. Draws in flight count."""
        if sources.is_dead(slot):
            return []
        return [each for each in self.candidates(sources, slot) if self._side_of(sources, slot, each) == side]

    def is_exhausted(self, candidate: Candidate) -> bool:
        """It was drawn as often as it may be."""
        return candidate.draws + candidate.in_flight >= self._most_draws[candidate.derivation]

    def _side_of(self, sources: SourceTable, slot: int, candidate: Candidate) -> int | None:
        if candidate.refused or self.is_exhausted(candidate):
            return None
        return self._side(sources.reward(slot), self._place[candidate.derivation])

    def _side(self, reward: float | None, place: int) -> int | None:
        """The side of the candidates that one derivation finds in a source; None where its reward is on none."""
        if not in_band(reward, self._rules[place].settings.select):
            return None
        if (balance := self._balances.get(place)) is None:
            return self._plain[place]
        right, derive = balance
        was_right = None if reward is None else right_of(derive, reward)
        return None if was_right is None else right + (not was_right)
