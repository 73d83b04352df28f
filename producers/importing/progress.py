"""How far an import is, for who shows it.

Guarantees: bytes are those of the files as they lie on the disk. Leaves out: drawing a bar (the command line).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

Phase = Literal["counting", "importing"]


@dataclass(slots=True, frozen=True)
class Progress:
    """`counting` is pass one, `importing` pass two; `rows` are lines."""

    phase: Phase
    bytes: int
    total: int
    rows: int


Watch = Callable[[Progress], None]
