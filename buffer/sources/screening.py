"""From a record's row to its candidates, and which of those may be drawn now (design/buffer#selection).

Guarantees: what a record offers depends on its row and the settings alone; what may be drawn depends on draws,
refusals and the newest reward as well. Leaves out: the rules themselves (`selection`), and which candidate is drawn
(`draws`).
"""

from __future__ import annotations

from collections import Counter

from rolloutlog.buffer.derivations.catalogue import derivation_of
from rolloutlog.buffer.index.rollout_row import RolloutRow
from rolloutlog.buffer.index.skip import Skip
from rolloutlog.buffer.sources.candidates import Candidate, SourceRecord
from rolloutlog.buffer.sources.draws import pick_some
from rolloutlog.buffer.sources.selection import anchors_for, in_band
from rolloutlog.contract.ids import rollout_id
from rolloutlog.contract.settings import BufferSettings, DerivationSettings

CandidateKey = tuple[int, str, int]
"""Offset of the source, derivation, node."""
Skips = Counter[tuple[str, Skip]]
"""How many records each derivation skipped, by reason (decisions/replay#26)."""


def key_of(source: SourceRecord, candidate: Candidate) -> CandidateKey:
    """Which candidate of the partition that is."""
    return source.row.offset, candidate.derivation, candidate.point.node


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
    points = pick_some(points, settings.salt, rollout_id(row.group, row.member), most)
    return [Candidate(derivation.name, point) for point in points]


def may_be_drawn(source: SourceRecord, candidate: Candidate, settings: DerivationSettings, in_flight: int) -> bool:
    """True for a candidate that isn't dead, exhausted or refused and whose reward fits; `in_flight` draws count."""
    if source.dead:
        return False
    fresh = candidate.draws + in_flight < settings.max_draws and not candidate.refused
    return fresh and in_band(source.reward, settings.select)
