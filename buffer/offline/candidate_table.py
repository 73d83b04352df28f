"""The candidates of a frozen buffer, as a table of fixed records (design/buffer#offline).

Guarantees: a row says where its source lies and which record that was (the digest of its value), where it is resumed,
and what the fold knew of it; rows come by partition, then as a shard ranks them. One row takes `CANDIDATE.itemsize`
bytes, so it is read in place from a mapped file. Leaves out: the file, and the names that `derivation` and `kind` are
numbers of (`manifest`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from rolloutlog.buffer.derivations.protocol import AnchorPoint
from rolloutlog.buffer.folding.fold import Fold
from rolloutlog.buffer.index.rollout_row import DIGEST_BYTES
from rolloutlog.contract.handles import Handle

CANDIDATE = np.dtype(
    [
        ("partition", "<i4"),
        ("offset", "<i8"),
        ("size", "<i8"),
        ("digest", "u1", (DIGEST_BYTES,)),
        ("derivation", "<i4"),
        ("kind", "<i4"),
        ("node", "<i4"),
        ("tokens", "<i4"),
        ("draws", "<i8"),
        ("reward", "<f8"),
    ]
)
Table: TypeAlias = NDArray[np.void]


@dataclass(slots=True, frozen=True)
class FrozenCandidate:
    """One candidate: its source, the digest of that record's value, its reward as last told (None: pending), the place
    at which it is resumed, and how often it had been drawn."""

    handle: Handle
    digest: bytes
    derivation: str
    point: AnchorPoint
    draws: int
    reward: float | None


def live_candidates(fold: Fold) -> list[FrozenCandidate]:
    """What may be drawn at a fold, by rank."""
    return [
        FrozenCandidate(
            source.row.handle(fold.partition),
            source.row.sha256,
            candidate.derivation,
            candidate.point,
            candidate.draws,
            source.reward,
        )
        for candidate in fold.pool.live
        for source in (fold.pool.sources[candidate.offset],)
    ]


def table_of(candidates: Iterable[FrozenCandidate], derivations: Sequence[str], kinds: Sequence[str]) -> Table:
    """Their rows, with the derivation and the kind of anchor as places in these names."""
    rows = [
        (
            each.handle.partition,
            each.handle.place,
            each.handle.size,
            np.frombuffer(each.digest, np.uint8),
            derivations.index(each.derivation),
            kinds.index(each.point.kind),
            each.point.node,
            each.point.tokens,
            each.draws,
            math.nan if each.reward is None else each.reward,
        )
        for each in candidates
    ]
    return np.array(rows, CANDIDATE)


def candidate_at(
    table: Table, place: int, derivations: Sequence[str], kinds: Sequence[str], source: str | None = None
) -> FrozenCandidate:
    """One row; `source` is the namespace of those that lie in one. Raises IndexError where it names what isn't
    among the names."""
    partition, offset, size, digest, derivation, kind, node, tokens, draws, reward = _values(table, place)
    return FrozenCandidate(
        Handle.at(partition, offset, size, source or ""),
        digest.tobytes(),
        derivations[int(derivation)],
        AnchorPoint(kinds[int(kind)], node, tokens),
        draws,
        None if math.isnan(reward) else reward,
    )


def _values(table: Table, place: int) -> tuple[Any, ...]:
    row = table[place]
    return tuple(row[name] if name == "digest" else row[name].item() for name in CANDIDATE.names or ())
