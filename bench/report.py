"""What a measurement says, as a table for people and as JSON for tools.

Guarantees: one line per figure with its unit, its target where there is one, and its ratio to what it was measured
beside. Leaves out: measuring (`timing` and the benches).
"""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One measured figure. `ratio` is to the figure named `against`, from the same rounds; targets are text."""

    bench: str
    name: str
    value: float
    unit: str
    target: str = ""
    ratio: float | None = None
    against: str | None = None


def show(figures: Iterable[Figure], console: Console) -> None:
    """Print a table."""
    table = Table(
        "bench", "figure", "value", "unit", "target", "ratio", "to", title="measured in one run, side by side"
    )
    for column in (2, 5):
        table.columns[column].justify = "right"
    for figure in figures:
        ratio = "" if figure.ratio is None else f"{figure.ratio:.2f}"
        table.add_row(
            figure.bench, figure.name, f"{figure.value:.4g}", figure.unit, figure.target, ratio, figure.against or ""
        )
    console.print(table)


def write(figures: Iterable[Figure], path: Path) -> None:
    """Write the figures as JSON, with the machine that they are of."""
    body = {"machine": machine(), "figures": [asdict(figure) for figure in figures]}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(body, indent=2) + "\n")


def machine() -> dict[str, str | int | None]:
    """What was measured on."""
    system, processor = platform.platform(), platform.machine()
    return {"python": platform.python_version(), "system": system, "processor": processor, "cores": os.cpu_count()}
