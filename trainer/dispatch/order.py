"""In which order groups that are ready go to the trainer (decisions/staleness#96 and #97).

Guarantees: a strategy is one small class that gives a key; keys depend on the log alone, so two trainers that read the
same offsets draw the same groups. Leaves out: a windowed FIFO with a proven bound.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from rolloutlog.contract.ids import rank_of
from rolloutlog.contract.settings import ShuffledOrder, TrainerSettings
from rolloutlog.trainer.dispatch.window import begun
from rolloutlog.trainer.groups.pending_group import PendingGroup
from rolloutlog.trainer.staleness.verdicts import GroupVerdict

Key = tuple[int, ...]


class Order(Protocol):
    """A dispatch order: the smallest key goes first."""

    def key(self, pending: PendingGroup, verdict: GroupVerdict) -> Key:
        """Rank of a group that is ready."""
        ...


@dataclass(slots=True, frozen=True)
class OldestFirst:
    """The group with the oldest token first, ties by arrival, so that none grows stale behind younger ones."""

    def key(self, pending: PendingGroup, verdict: GroupVerdict) -> Key:
        """By the oldest effective version; groups of unknown policies have no age and go first."""
        oldest = -1 if verdict.oldest is None else verdict.oldest
        return (oldest, pending.timestamp, pending.partition, pending.offset)


@dataclass(slots=True, frozen=True)
class Arrival:
    """The group whose last record came first."""

    def key(self, pending: PendingGroup, verdict: GroupVerdict) -> Key:
        """By the newest record timestamp."""
        return (pending.touched, pending.partition, pending.offset)


@dataclass(slots=True, frozen=True)
class FreshestFirst:
    """The group whose oldest token is the youngest first, ties by arrival: closest to on-policy."""

    def key(self, pending: PendingGroup, verdict: GroupVerdict) -> Key:
        """By the oldest effective version, backwards; groups of unknown policies go last."""
        oldest = -1 if verdict.oldest is None else verdict.oldest
        return (-oldest, pending.timestamp, pending.partition, pending.offset)


@dataclass(slots=True, frozen=True)
class AsBegun:
    """The group whose first record came first; with a window over it (`rolloutlog.trainer.dispatch.window`)."""

    def key(self, pending: PendingGroup, verdict: GroupVerdict) -> Key:
        """By the first record."""
        return begun(pending)


@dataclass(slots=True, frozen=True)
class Shuffled:
    """By lot: what depends on the seed, the pass and the group's name alone."""

    seed: int

    def key(self, pending: PendingGroup, verdict: GroupVerdict) -> Key:
        """By a hash."""
        return (rank_of("order", self.seed, pending.pass_number, pending.id), pending.partition, pending.offset)


def order_of(settings: TrainerSettings) -> Order:
    """The strategy that the settings name."""
    if isinstance(settings.order, ShuffledOrder):
        return Shuffled(settings.order.seed)
    orders: dict[str, Order] = {
        "oldest": OldestFirst(),
        "freshest": FreshestFirst(),
        "arrival": Arrival(),
        "windowed": AsBegun(),
    }
    return orders[settings.order.type]
