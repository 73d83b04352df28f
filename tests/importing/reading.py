"""Reading single lines as an import does, for tests.

Guarantees: both passes agree on whose a line is, or the test fails. Leaves out: files.
"""

from __future__ import annotations

from typing import Any

import orjson

from rolloutlog.contract.events.validation import Rejected
from rolloutlog.contract.vocabulary import RejectReason
from rolloutlog.formats.foreign.era import Beside, Era
from rolloutlog.formats.foreign.recorded import Origin, RecordedRollout, TraceIdentity
from rolloutlog.formats.readers import identify, look, parse, read


def form_of(raw: bytes) -> Era | Beside | None:
    """What a line is."""
    return parse(raw).form


def whose(raw: bytes, origin: Origin | None = None) -> TraceIdentity:
    """Whose a line is."""
    place = origin or Origin()
    form, glance = look(raw)
    assert isinstance(form, Era)
    found = identify(glance, form, place, raw)
    parsed = parse(raw)
    assert identify(parsed.glance, form, place, raw) == found
    return found


def read_raw(raw: bytes, origin: Origin | None = None) -> RecordedRollout:
    """A line as a rollout. Raises Rejected."""
    parsed = parse(raw)
    assert isinstance(parsed.form, Era)
    return read(parsed, parsed.form, origin or Origin())


def read_line(line: dict[str, Any], origin: Origin | None = None) -> RecordedRollout:
    """The same of a line that isn't text yet."""
    return read_raw(orjson.dumps(line), origin)


def reason_of(line: dict[str, Any]) -> RejectReason | None:
    """Why a line is rejected; None where it is sound."""
    try:
        read_line(line)
    except Rejected as rejected:
        return rejected.reason
    return None
