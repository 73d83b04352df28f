"""From a record's row to its candidates, and which of those may be drawn now (design/buffer#selection).

Guarantees: what a record offers depends on its row and the settings alone; what may be drawn depends on draws,
refusals and the newest reward as well. Leaves out: the rules themselves (`selection`), and which candidate is drawn
(`draws`).
"""

from __future__ import annotations

from collections import Counter

from rolloutlog.buffer.derivations.catalogue import derivation_of
from rolloutlog.buffer.derivations.protocol import AnchorPoint
from rolloutlog.buffer.index.rollout_row import RolloutRow
from rolloutlog.buffer.index.skip import Skip
from rolloutlog.buffer.sources.candidates import Candidate, SourceRecord
from rolloutlog.buffer.sources.draws import pick_some
from rolloutlog.buffer.sources.selection import anchors_for, in_band
from rolloutlog.contract.ids import rollout_id
from rolloutlog.contract.settings import BufferSettings, DerivationSettings

Skips = Counter[tuple[str, Skip]]
"""How many records each derivation skipped, by reason (decisions/replay#26)."""


def candidates_of(row: RolloutRow, settings: BufferSettings, skips: Skips) -> list[Candidate]:
    """Candidates that the derivations find in a record; the others are counted in `skips`."""
    return [found for derivation in settings.derivations for found in _found(row, derivation, settings, skips)]


def _found(row: RolloutRow, derivation: DerivationSettings, settings: BufferSettings, skips: Skips) -> list[Candidate]:
    points = anchors_for(row, derivation, settings.seq_len)
    if isinstance(points, Skip):
        skips[derivation.name, points] += 1
        return []
    if row.reward is not None and not in_band(row.reward, derivation.select):
        skips[derivation.name, Skip.SOURCE_REWARD] += 1  # it keeps its places: a later reward may lie in the band
    most = derivation_of(derivation.derive).most_anchors
    points = pick_some(_one_a_node(points), settings.salt, rollout_id(row.group, row.member), most)
    return [Candidate(row.offset, derivation.name, point) for point in points]


def _one_a_node(points: list[AnchorPoint]) -> list[AnchorPoint]:
    """The first of each node: a seed names its node alone, so two would be one seed (decisions/replay#31)."""
    found: dict[int, AnchorPoint] = {}
    for point in points:
        found.setdefault(point.node, point)
    return list(found.values())


def may_be_drawn(source: SourceRecord, candidate: Candidate, settings: DerivationSettings) -> bool:
    """True for a candidate that isn't dead, exhausted or refused and whose reward fits; draws in flight count."""
    if source.dead or candidate.refused:
        return False
    drawn = candidate.draws + candidate.in_flight
    return drawn < settings.max_draws and in_band(source.reward, settings.select)
