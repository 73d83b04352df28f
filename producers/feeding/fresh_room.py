"""How many fresh groups a feeder may open now, and what it lacks where it may open none
(design/staleness#open-groups).

Guarantees: no more than the run may have open, less its derived part, over all feeders, and no more than this feeder's
own part of them. Leaves out: which groups are open (`fresh_groups`), and writing (`seed_feeder`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from rolloutlog.contract.numbers import deal
from rolloutlog.contract.trainer_settings import TrainerSettings
from rolloutlog.producers.feeding.fresh_groups import FreshGroups


class FeedLack(StrEnum):
    """Why a feeder writes no seed."""

    OPEN_GROUPS = "open-groups"
    OWN_SHARE = "own-share"
    NO_TASK = "no-task"


@dataclass(slots=True, frozen=True)
class FreshRoom:
    """Fresh groups: `most` that the run may have open and `open` ones, `own_most` and `own_open` of this feeder."""

    most: int = 0
    open: int = 0
    own_most: int = 0
    own_open: int = 0

    @classmethod
    def of(
        cls, trainer: TrainerSettings, groups: FreshGroups, env: str, *, partitions: int, share: float | None
    ) -> FreshRoom:
        """By the trainer settings that hold now."""
        most = max(trainer.open_groups - trainer.derived_open(partitions), trainer.batch_groups)
        return cls(most, groups.count, fresh_part(most, env, trainer.weights, share), groups.own_open)

    @property
    def left(self) -> int:
        """How many may be opened."""
        return max(0, min(self.most - self.open, self.own_most - self.own_open))

    @property
    def lack(self) -> FeedLack | None:
        """Which bound lets none be opened."""
        if self.open >= self.most:
            return FeedLack.OPEN_GROUPS
        return FeedLack.OWN_SHARE if self.own_open >= self.own_most else None

    def __str__(self) -> str:
        """As a line says it."""
        return f"{self.open} of {self.most} fresh groups are open, {self.own_open} of {self.own_most} of this feeder"


def fresh_part(fresh: int, env: str, weights: Mapping[str, float], share: float | None) -> int:
    """How many of `fresh` open groups a feeder may have; where it has a part at all, one at least."""
    if share is not None:
        return max(1, round(fresh * share))
    if not weights:
        return fresh
    dealt = dict(zip(weights, deal(fresh, list(weights.values())), strict=True))
    return dealt.get(env, 0)
