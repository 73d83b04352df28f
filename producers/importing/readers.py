"""One reader per era: what pass one needs of a line, and the line as a rollout.

Guarantees: `identify_line` and `read_rollout` agree on what a line is; whatever is wrong with it is one `Rejected`.
Leaves out: files and line ends (`lines`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import orjson

from rolloutlog.contract.checks import Rejected, check_trajectory
from rolloutlog.contract.vocabulary import RejectReason
from rolloutlog.producers.importing import episodes, july
from rolloutlog.producers.importing.era import Beside, Era, sniff
from rolloutlog.producers.importing.recorded import Identity, Origin, Recorded

MALFORMED = (AttributeError, IndexError, KeyError, OverflowError, TypeError, ValueError)
"""What a foreign dict of another shape than its era's makes a reader raise."""


class Reader(NamedTuple):
    """How lines of one era are read."""

    identify: Callable[[dict[str, Any], Origin], Identity]
    read: Callable[[dict[str, Any], Origin, Era], Recorded]


READERS: dict[Era, Reader] = {
    Era.E1: Reader(july.identify, july.read),
    Era.E1B: Reader(july.identify, july.read),
    Era.E4: Reader(episodes.identify, episodes.read),
    Era.E5: Reader(episodes.identify, episodes.read),
}


def parse(raw: bytes) -> Any:
    """The JSON of a line. Raises Rejected(not-json)."""
    try:
        return orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        raise Rejected(RejectReason.NOT_JSON, f"not JSON: {error}") from error


def identify_line(raw: bytes, origin: Origin) -> Identity | None:
    """Which trace a line is; None for a line that is no rollout. Raises Rejected."""
    line = parse(raw)
    era = sniff(line)
    if isinstance(era, Beside):
        return None
    try:
        return READERS[era].identify(line, origin)
    except MALFORMED as error:
        raise _malformed(era, error) from error


def read_rollout(line: dict[str, Any], origin: Origin, era: Era) -> Recorded:
    """A parsed line of an era as a sound rollout; the line's dicts become the record's. Raises Rejected."""
    try:
        recorded = READERS[era].read(line, origin, era)
    except Rejected:
        raise
    except MALFORMED as error:
        raise _malformed(era, error) from error
    check_trajectory(recorded.trajectory)
    return recorded


def _malformed(era: Era, error: Exception) -> Rejected:
    return Rejected(RejectReason.SHAPE, f"not as era {era} writes it: {type(error).__name__}: {error}")
