"""What somebody who iterates asks of a group stream. Guarantees: each iterator has one of its own. Leaves out: reading
and drawing (`batch_reader`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(slots=True)
class Wish:
    """What is asked for: batches of `size` groups, with `drain` up to the end that the log has at first, which `stops`
    then holds by partition; with `short_after_s` a smaller one once nothing came for so long and no group that is known
    lacks a member; `over` while nobody asks."""

    size: int
    drain: bool = False
    short_after_s: float | None = None
    stops: Mapping[int, int] | None = None
    over: bool = False
