"""The seam of a derivation: where a source can be resumed, and what is then asked.

A derivation is one class of settings with two hooks, `anchors` and `prompt`, and a third, `score`, if it doesn't leave
that to the innermost task. It is found by entry point, of the group `rolloutlog.derivations` and under the name that
its `type` has; any installed package may have one (docs/derive-seeds.md shows it).

Guarantees: the buffer's code knows no more of a derivation than what stands here. Leaves out: selection, lineage and
draws, which are the same for all.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any, NamedTuple, Protocol, cast, runtime_checkable

from rolloutlog.contract.events.seeds import Seed
from rolloutlog.contract.record.node import Message
from rolloutlog.contract.record.trajectory import Trajectory
from rolloutlog.contract.section import Section


class AnchorPoint(NamedTuple):
    """A node at which a seed may resume, and the tokens of the context up to it. `kind` says which anchor it is:
    the derivation's type, unless the derivation has several kinds and its `takes` tells them apart."""

    kind: str
    node: int
    tokens: int


@runtime_checkable
class Derivation(Protocol):
    """One way to derive a task from a rollout."""

    @property
    def type(self) -> str:
        """Its name, which is the kind of the seeds that it makes."""
        ...

    @property
    def most_anchors(self) -> int | None:
        """Anchors per source that are drawn from; None: all."""
        ...

    @property
    def needs_environment(self) -> bool:
        """True where the innermost environment goes on from the anchor, with its tools, its container
        (decisions/replay#8) and its own score. Else the engine alone answers the prompt (decisions/replay#75)."""
        ...

    @classmethod
    def anchors(cls, trajectory: Trajectory) -> Iterable[AnchorPoint]:
        """Every place at which this source can be resumed, whatever the settings, in order of nodes; none where it
        can't be one."""
        ...

    def takes(self, anchor: AnchorPoint) -> bool:
        """True for the anchors that these settings resume at; their kind tells, so it is asked once a kind."""
        ...

    def tokens(self, anchor: AnchorPoint) -> int:
        """Tokens of the prompt at that anchor."""
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


@runtime_checkable
class Measuring(Protocol):
    """A derivation that has more to say of its own rollouts than a score."""

    def metrics(self, seed: Seed, record: Mapping[str, Any]) -> Mapping[str, float]:
        """Numbers by name, which are added to the `metrics` of the record."""
        ...


@runtime_checkable
class Balanced(Protocol):
    """A derivation that draws right and wrong sources alike often, however many there are of either."""

    def was_right(self, reward: float) -> bool:
        """What the recorded reward of a source says of it."""
        ...


def right_of(derivation: Balanced, reward: float) -> bool | None:
    """What it says of a reward; None where it fails on that one, which is then of neither side."""
    try:
        return bool(derivation.was_right(reward))
    except MemoryError:
        raise
    except Exception:  # noqa: BLE001 - a hook may be anybody's; a late reward has no row that could tell a fault
        return None


@cache
def type_name(derivation: type) -> str:
    """The name by which settings know a type."""
    return str(cast("type[Section]", derivation).model_fields["type"].default)


class DerivationSection(Section):
    """What most derivations have in common: one kind of anchor, all of them drawn from, and no tokens but the
    source's. Subclasses have a field `type`, a literal with its default, and `anchors` and `prompt`."""

    @property
    def most_anchors(self) -> int | None:
        """All."""
        return None

    @property
    def needs_environment(self) -> bool:
        """The innermost environment goes on with it."""
        return True

    def takes(self, anchor: AnchorPoint) -> bool:
        """Those that have its name."""
        return anchor.kind == type_name(type(self))

    def tokens(self, anchor: AnchorPoint) -> int:
        """Those of the source's context."""
        return anchor.tokens
