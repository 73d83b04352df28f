"""For whom a group waits, in which order groups are drawn, what answers that were cut do, and what holds for one
environment alone
(design/trainer#stragglers, design/trainer#draw).

Guarantees: each is tagged by its type, and no two types do the same. Leaves out: acting on them
(`rolloutlog.trainer.dispatch`), and how they go together (`trainer_settings`).
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from rolloutlog.contract.section import LONGEST_S, MOST, Section, tagged
from rolloutlog.contract.staleness_settings import Staleness


class Wait(Section):
    """Wait for every member that the group needs."""

    type: Literal["wait"] = "wait"
    """The policy."""


class Deadline(Section):
    """Go on with what is there once `seconds` passed on the partition and at least `k` fresh members are there."""

    type: Literal["deadline"] = "deadline"
    """The policy."""
    seconds: float = Field(gt=0, le=LONGEST_S)
    """Time since the group's first record, on the broker's clock, however wrong a worker's or the trainer's own is."""
    k: int = Field(default=2, ge=1, le=MOST)
    """Members that must be there, `min_survivors` at least."""


class OverProvision(Section):
    """Train the first `group_train` members of each group, whatever number were dispatched; the rest are surplus.

    A group that says itself that it needs fewer is trained with those, under every policy.
    """

    type: Literal["over-provision"] = "over-provision"
    """The policy."""
    group_train: int = Field(ge=1, le=MOST)
    """Members that suffice, `min_survivors` at least."""


Straggler = Annotated[Wait | Deadline | OverProvision, Field(discriminator="type"), BeforeValidator(tagged)]


Truncated = Literal["train", "mask", "baseline"]
"""What an answer does that a limit cut (design/staleness#truncated)."""


class OldestOrder(Section):
    """The group with the oldest token first, so that none grows stale behind younger ones."""

    type: Literal["oldest"] = "oldest"
    """The order."""


class FreshestOrder(Section):
    """The group whose oldest token is the youngest first: closest to on-policy, while older ones may expire."""

    type: Literal["freshest"] = "freshest"
    """The order."""


class ArrivalOrder(Section):
    """The group whose last record came first."""

    type: Literal["arrival"] = "arrival"
    """The order."""


class WindowedOrder(Section):
    """As groups began, but a slow one lets at most `window` - 1 younger ones pass; then a step waits for it.

    So a group with i open ones before it is trained at most ceil((window - 1) / B) steps after step i // B from then.
    """

    type: Literal["windowed"] = "windowed"
    """The order."""
    window: int = Field(ge=1, le=MOST)
    """1: strictly as they began."""


class ShuffledOrder(Section):
    """By lot, anew in each pass: for offline training, since elsewhere unlucky groups grow stale."""

    type: Literal["shuffled"] = "shuffled"
    """The order."""
    seed: int = Field(default=0, ge=0, le=MOST)
    """The same seed shuffles alike, of the groups that are held at once (`buffer_groups`)."""


DispatchOrder = Annotated[
    OldestOrder | FreshestOrder | ArrivalOrder | WindowedOrder | ShuffledOrder,
    Field(discriminator="type"),
    BeforeValidator(tagged),
]


class EnvironmentSettings(Section):
    """What holds for the groups of one environment."""

    weight: float | None = Field(default=None, ge=0, le=1e6)
    """Its part of each batch, by largest remainder, if any environment has one; 0: its groups are dropped."""
    staleness: Staleness | None = None
    """How old its tokens may be; unset: as the trainer's."""
