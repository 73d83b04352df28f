"""Index rows of July 2026: where each record lies in the file beside them (design/eras#july).

Guarantees: a row whose span doesn't hold the trace that it names is rejected; without the file beside it nothing can be
said. Leaves out: selecting records by their rows, since an import reads all of them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rolloutlog.contract.events.validation import Rejected
from rolloutlog.contract.vocabulary import RejectReason
from rolloutlog.formats.foreign.glance import skim

PREFIX = "index_"
KINDS = ("train", "eval")
"""Files of both kinds share one name of an index."""


def check_row(row: dict[str, Any], path: Path) -> None:
    """Look at the span that a row of the index at `path` names. Raises Rejected(index-span)."""
    beside = [file for kind in KINDS if (file := _records(path, kind)).is_file()]
    if path.name.startswith(PREFIX) and beside and not any(_holds(file, row) for file in beside):
        raise Rejected(
            RejectReason.INDEX_SPAN,
            f"{row.get('len')} bytes at {row.get('offset')} of {beside[0].name} aren't trace {row.get('trace')}",
        )


def _records(path: Path, kind: str) -> Path:
    return path.with_name(f"{kind}_rollouts_{path.name.removeprefix(PREFIX)}")


def _holds(file: Path, row: dict[str, Any]) -> bool:
    try:
        with file.open("rb") as stream:
            stream.seek(row["offset"])
            return str(skim(stream.read(row["len"])).id) == str(row["trace"])
    except (KeyError, OSError, OverflowError, Rejected, TypeError, ValueError):
        return False
