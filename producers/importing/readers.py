"""One reader per era: what pass one needs of a line, and the line as a rollout.

Guarantees: both passes agree on what a line is and whose; whatever is wrong with it is one `Rejected`. Leaves out:
files and line ends (`lines`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import orjson

from rolloutlog.contract.checks import Rejected, check_trajectory
from rolloutlog.contract.vocabulary import RejectReason
from rolloutlog.producers.importing import episodes, july
from rolloutlog.producers.importing.era import Beside, Era, sniff
from rolloutlog.producers.importing.glance import Glance, glance_at, skim
from rolloutlog.producers.importing.recorded import Identity, Origin, Recorded

MALFORMED = (AttributeError, IndexError, KeyError, OverflowError, TypeError, ValueError)
"""What a foreign dict of another shape than its era's makes a reader raise."""


class Reader(NamedTuple):
    """How lines of one era are read: whose a line is, and what it holds."""

    identify: Callable[[Glance, Origin], Identity]
    read: Callable[[dict[str, Any], Glance, Origin], Recorded]


READERS: dict[Era, Reader] = {
    Era.E1: Reader(july.identify, july.read),
    Era.E1B: Reader(july.identify, july.read),
    Era.E4: Reader(episodes.identify, episodes.read),
    Era.E5: Reader(episodes.identify, episodes.read),
}


@dataclass(slots=True)
class Parsed:
    """A parsed line and what it is."""

    line: dict[str, Any]
    glance: Glance
    form: Era | Beside


def glance(raw: bytes, origin: Origin) -> Identity | None:
    """Whose an unparsed line is; None for one that is no rollout. Raises Rejected."""
    line = skim(raw)
    form = sniff(line)
    if form is None or isinstance(form, Beside):
        return None
    try:
        return READERS[form].identify(line, origin)
    except ValueError as error:
        raise Rejected(RejectReason.SHAPE, str(error)) from error


def parse(raw: bytes) -> Parsed:
    """A line and what it is. Raises Rejected(not-json, shape or era-unknown)."""
    try:
        line: Any = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        raise Rejected(RejectReason.NOT_JSON, f"not JSON: {error}") from error
    looked_at = glance_at(line)
    form = sniff(looked_at)
    if form is None:
        raise Rejected(RejectReason.ERA_UNKNOWN, f"no era has a line with the keys {', '.join(sorted(line))[:200]}")
    return Parsed(line, looked_at, form)


def read(parsed: Parsed, era: Era, origin: Origin) -> Recorded:
    """A line as a sound rollout; its dicts become the record's. Raises Rejected."""
    try:
        recorded = READERS[era].read(parsed.line, parsed.glance, origin)
    except Rejected:
        raise
    except MALFORMED as error:
        raise Rejected(RejectReason.SHAPE, f"not as {era} writes it: {type(error).__name__}: {error}") from error
    check_trajectory(recorded.trajectory)
    return recorded
