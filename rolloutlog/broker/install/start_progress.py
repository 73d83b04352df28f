"""How far a start has come, for whoever wants to show it.

Guarantees: `done` counts up to `total` within a stage. Leaves out: drawing (the command line does that).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

Stage = Literal["fetch", "format", "start", "ready"]


@dataclass(frozen=True, slots=True)
class StartProgress:
    """One step of a start: `done` of `total` jars (stage fetch) or nodes (the other stages)."""

    stage: Stage
    done: int
    total: int


OnProgress = Callable[[StartProgress], None]


def silent(_: StartProgress) -> None:
    """The default listener: shows nothing."""
