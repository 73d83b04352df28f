"""Offsets as they are given on a command line, `PARTITION/OFFSET` once a partition.

Guarantees: what isn't one, and two of one partition, are refused. Leaves out: whether they are on the log.
"""

from __future__ import annotations

from collections.abc import Sequence

import typer


def offsets_by_partition(texts: Sequence[str]) -> dict[int, int]:
    """The offset of each partition that is named. Raises BadParameter."""
    from rolloutlog.contract.handles import Handle

    found: dict[int, int] = {}
    for text in texts:
        try:
            place = Handle.parse(text)
        except ValueError as error:
            raise typer.BadParameter(f"{text!r} isn't PARTITION/OFFSET") from error
        if found.setdefault(place.partition, place.offset) != place.offset:
            raise typer.BadParameter(f"partition {place.partition} is cut in two places")
    return found
