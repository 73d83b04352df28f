"""What one derivation of a run takes of a row (design/buffer#selection).

Guarantees: depends on the row and the settings alone; hooks of a derivation are asked for what they are, once a kind of
anchor, and once an anchor where tokens are bounded. Leaves out: why a whole record is passed over (`selection`), and
what may be drawn now (`screening`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from rolloutlog.buffer.derivations.catalogue import derivation_of, facts_of
from rolloutlog.buffer.derivations.protocol import AnchorPoint
from rolloutlog.buffer.index.skip import Skip
from rolloutlog.buffer.sources.draws import pick_some
from rolloutlog.contract.settings import DerivationSettings

Places = Mapping[str, Sequence[int]]
"""Of each kind of anchor node and tokens, again and again, as they are packed in a row."""


class SourceRule:
    """One derivation's settings. `seq_len` bounds a whole sequence, so a seed that leaves no token to sample is too
    long (decisions/replay#19)."""

    def __init__(self, settings: DerivationSettings, seq_len: int | None = None) -> None:
        self.settings, self.derive = settings, derivation_of(settings.derive)
        room = None if seq_len is None else seq_len - (settings.budget or 1)
        limits = [limit for limit in (settings.select.max_seed_tokens, room) if limit is not None]
        self._most_tokens = min(limits, default=None)
        self._most_anchors, self._needs_environment = facts_of(settings)
        self._taken: dict[str, bool] = {}

    def counts_by_kinds(self, kinds: Iterable[str], *, lone: bool) -> bool:
        """True where that a record has anchors of these kinds, at which it was asked before, says all that `count`
        needs of one without snapshots; `lone`: it has one of each."""
        taken = sum(self._taken.get(kind, True) for kind in kinds)
        return not taken or (self._most_tokens is None and (self._most_anchors == 1 or (lone and taken == 1)))

    def points(self, places: Places, snapshots: Sequence[int] | None) -> list[AnchorPoint] | Skip:
        """Where it may resume, or why nowhere."""
        try:
            return self._points(places, snapshots)
        except MemoryError:
            raise
        except Exception:  # noqa: BLE001 - of a row that was indexed without this derivation, so that it tells no fault
            return Skip.REJECTED

    def _points(self, places: Places, snapshots: Sequence[int] | None) -> list[AnchorPoint] | Skip:
        known = self._taken
        taken = [
            (kind, numbers)
            for kind, numbers in places.items()
            if (known[kind] if kind in known else self._takes(kind, numbers))
        ]
        if not taken:
            return Skip.NO_SEED
        points = [AnchorPoint(kind, *at) for kind, some in taken for at in zip(some[::2], some[1::2], strict=True)]
        if snapshots is not None and self._needs_environment:
            points = [point for point in points if point.node in snapshots]  # decisions/replay#92
            if not points:
                return Skip.NO_SNAPSHOT
        if (most := self._most_tokens) is not None:
            points = [point for point in points if self.derive.tokens(point) <= most]
        return points or Skip.OVERLONG

    def _takes(self, kind: str, numbers: Sequence[int]) -> bool:
        self._taken[kind] = taken = self.derive.takes(AnchorPoint(kind, numbers[0], numbers[1]))
        return taken

    def count(self, places: Places, snapshots: Sequence[int] | None) -> int | Skip:
        """How many candidates it finds: one a node, and no more than are drawn from."""
        points = self.points(places, snapshots)
        if isinstance(points, Skip):
            return points
        if (most := self._most_anchors) == 1:
            return 1
        count = len({point.node for point in points})
        return count if most is None else min(count, most)

    def chosen(self, points: Sequence[AnchorPoint], salt: str, rollout: str) -> list[AnchorPoint]:
        """Those that are: the first of each node, since a seed names its node alone, so two would be one seed
        (decisions/replay#31)."""
        found: dict[int, AnchorPoint] = {}
        for point in points:
            found.setdefault(point.node, point)
        return pick_some([*found.values()], salt, rollout, self._most_anchors)
