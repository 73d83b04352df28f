"""The seam of a derivation: where a source can be resumed, and what is then asked.

Guarantees: whoever has these methods is a derivation; the buffer's code knows no more of one. Leaves out: settings,
lineage and draws, which are the same for all.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol, runtime_checkable

from rolloutlog.contract.events.seeds import Seed
from rolloutlog.contract.record.node import Message
from rolloutlog.contract.record.trajectory import Trajectory
from rolloutlog.contract.vocabulary import SeedKind


class AnchorPoint(NamedTuple):
    """A node at which a seed may resume, and the tokens of the context up to it."""

    kind: str
    node: int
    tokens: int


class Derivation(Protocol):
    """One way to derive a task from a rollout."""

    @property
    def kind(self) -> SeedKind:
        """Kind of the seeds that it makes."""
        ...

    def anchors(self, trajectory: Trajectory) -> list[AnchorPoint]:
        """Every place at which this source can be resumed, in order of nodes; none where it can't be one."""
        ...

    def prompt(self, trajectory: Trajectory, anchor: AnchorPoint) -> list[Message]:
        """Messages of the new task, system message included."""
        ...


@runtime_checkable
class Scoring(Protocol):
    """A derivation that scores its own rollouts instead of leaving that to the innermost task."""

    def score(self, seed: Seed, record: Mapping[str, Any]) -> float | None:
        """Reward of a rollout made from `seed`; None where the record doesn't say."""
        ...
