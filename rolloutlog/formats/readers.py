"""One reader per era: what pass one needs of a line, and the line as a rollout.

Guarantees: both passes agree on what a line is and whose; whatever is wrong with it is one `Rejected`. Leaves out:
files and line ends (`rolloutlog.producers.importing.files.lines`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from msgspec.structs import replace

from rolloutlog.contract.events.validation import Rejected, check_trajectory
from rolloutlog.contract.ids import digest_of
from rolloutlog.contract.vocabulary import RejectReason
from rolloutlog.contract.wire import json_text
from rolloutlog.formats.eras import chat, cohorts, episodes, july, native
from rolloutlog.formats.eras import own_lines as own
from rolloutlog.formats.foreign.era import Beside, Era, sniff
from rolloutlog.formats.foreign.export_stamp import take_stamp
from rolloutlog.formats.foreign.glance import Glance, glance_at, skim
from rolloutlog.formats.foreign.recorded import Origin, RecordedRollout, TraceIdentity, mark_of
from rolloutlog.formats.foreign.rejecting import read_or_reject


class Reader(NamedTuple):
    """How lines of one era are read: whose a line is, and what it holds."""

    identify: Callable[[Glance, Origin], TraceIdentity]
    read: Callable[[dict[str, Any], Glance, Origin], RecordedRollout]


READERS: dict[Era, Reader] = {
    Era.E0: Reader(chat.identify, chat.read),
    Era.E1: Reader(july.identify, july.read),
    Era.E1B: Reader(july.identify, july.read),
    Era.E2: Reader(cohorts.identify, cohorts.read),
    Era.E3: Reader(native.identify, native.read),
    Era.E4: Reader(episodes.identify, episodes.read),
    Era.E5: Reader(episodes.identify, episodes.read),
}


@dataclass(slots=True)
class ParsedLine:
    """A parsed line and what it is."""

    line: dict[str, Any]
    glance: Glance
    form: Era | Beside


def look(raw: bytes | memoryview) -> tuple[Era | Beside | None, Glance]:
    """What an unparsed line is. Raises Rejected."""
    line = skim(raw)
    return sniff(line), line


def identify(line: Glance, era: Era, origin: Origin, raw: bytes | memoryview) -> TraceIdentity:
    """Whose a line is; where its file must tell, it is known by its digest. Raises Rejected."""
    if (stamped := own.identify(line)) is not None:
        return stamped
    try:
        identity = READERS[era].identify(line, origin)
    except ValueError as error:
        raise Rejected(RejectReason.SHAPE, str(error)) from error
    needed = identity.is_of_a_file or not identity.traces
    return replace(identity, mark=mark_of(digest_of(raw))) if needed else identity


def parse(raw: bytes) -> ParsedLine:
    """A line and what it is. Raises Rejected(not-json, shape or era-unknown)."""
    line = json_text.parse(raw)
    looked_at = glance_at(line)
    form = sniff(looked_at)
    if form is None:
        raise Rejected(RejectReason.ERA_UNKNOWN, f"no era has a line with the keys {', '.join(sorted(line))[:200]}")
    return ParsedLine(line, looked_at, form)


def read(parsed: ParsedLine, era: Era, origin: Origin) -> RecordedRollout:
    """A line as a sound rollout; its dicts become the record's. Raises Rejected."""
    stamp = take_stamp(parsed.line)

    def as_its_era() -> RecordedRollout:
        recorded = read_or_reject(READERS[era].read, parsed.line, parsed.glance, origin)
        if isinstance(recorded, Rejected):
            raise recorded
        return recorded

    recorded = as_its_era() if stamp is None else own.restored(*stamp, as_its_era)
    check_trajectory(recorded.trajectory)
    return recorded
