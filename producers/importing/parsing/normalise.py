"""Lines to what the two passes need of them; pure, so that any process can do it.

Guarantees: whatever a line holds, it comes back as one item, a fault included. Leaves out: files (`lines`), and
processes (`parser_pool`).
"""

from __future__ import annotations

from pathlib import Path

import orjson

from rolloutlog.contract.events.dead_letters import RAW_BYTES
from rolloutlog.contract.events.validation import Rejected
from rolloutlog.contract.ids import digest_of
from rolloutlog.contract.policies import Policy
from rolloutlog.contract.record import provenance, value
from rolloutlog.contract.vocabulary import RejectReason
from rolloutlog.contract.wire.headers import Headers
from rolloutlog.formats.foreign.era import Beside, Era
from rolloutlog.formats.foreign.normal_line import Fault, NormalLine, NormalRollout
from rolloutlog.formats.foreign.recorded import Origin, RecordedRollout, TraceIdentity
from rolloutlog.formats.foreign.rejecting import read_or_reject
from rolloutlog.formats.readers import ParsedLine, identify, look, parse, read
from rolloutlog.producers.importing.files.lines import Line
from rolloutlog.producers.importing.files.spans import FileSpan
from rolloutlog.producers.importing.parsing.july_index import check_row
from rolloutlog.producers.importing.parsing.updates import UpdateAt, read_update

TIMELINE = 0
"""Recorded policies are of timeline 0 (design/eras#policies)."""


def count(line: Line, span: FileSpan) -> TraceIdentity | UpdateAt | None:
    """Whose a line is, or which trace it updates; None where pass two will say why it is neither."""
    if line.fault is not None:
        return None
    counted = read_or_reject(_count, line, span)
    return None if isinstance(counted, Rejected) else counted


def _count(line: Line, span: FileSpan) -> TraceIdentity | UpdateAt | None:
    form, glance = look(line.raw)
    if isinstance(form, Era):
        return identify(glance, form, span.origin, line.raw)
    if form is Beside.UPDATE:
        return UpdateAt(str(glance.trace_id), line.byte, len(line.text), line.text if span.is_compressed else None)
    return None


def normalise(line: Line, span: FileSpan) -> NormalLine:
    """A line, read whole."""
    normal = NormalLine(line.byte, len(line.raw), digest_of(line.raw))
    rejected = line.fault or read_or_reject(_fill, normal, line, span)
    if rejected is not None:
        normal.fault = _fault(line, rejected)
    return normal


def _fill(normal: NormalLine, line: Line, span: FileSpan) -> None:
    """Raises Rejected, and whatever else a foreign line makes code raise."""
    if line.text.isspace():
        return
    parsed = parse(line.text)
    if isinstance(parsed.form, Beside):
        normal.era, normal.beside = parsed.form.era, parsed.form
        _check_beside(parsed, parsed.form, span)
        normal.updates = str(parsed.glance.trace_id) if parsed.form is Beside.UPDATE else None
    else:
        normal.era = parsed.form
        normal.rollout = _rollout(line, parsed, parsed.form, span.origin)


def _check_beside(parsed: ParsedLine, form: Beside, span: FileSpan) -> None:
    if form is Beside.UPDATE:
        read_update(parsed.line)
    elif form is Beside.SPAN:
        check_row(parsed.line, Path(span.path))


def _rollout(line: Line, parsed: ParsedLine, era: Era, origin: Origin) -> NormalRollout:
    identity = identify(parsed.glance, era, origin, line.raw)
    recorded = read(parsed, era, origin)
    orjson.dumps(recorded.notes)  # notes travel as JSON: what can't is a fault of this line
    body = value.encode(recorded.trajectory)
    digest = digest_of(body)
    return NormalRollout(
        identity=identity,
        body=body,
        digest=digest,
        status=recorded.status,
        reward=recorded.trajectory.reward,
        headers=Headers.encode(provenance.of_value(recorded.status, recorded.trajectory, digest)),
        env=recorded.env,
        policies=_policies(recorded),
        dispatch_step=recorded.dispatch_step,
        step=recorded.step,
        filtered=recorded.filtered,
        lineage=recorded.lineage,
        notes=recorded.notes,
        slot=recorded.slot,
        is_own=recorded.is_own,
    )


def _policies(recorded: RecordedRollout) -> list[Policy]:
    """Policies of a line: of its episode, where it names only those, or of its tokens."""
    if recorded.is_own:
        return recorded.trajectory.runs.policies() if len(recorded.trajectory.segments) else []
    span = recorded.policy
    return [] if span is None else [Policy(TIMELINE, span.start), Policy(TIMELINE, span.end)]


def _fault(line: Line, rejected: Rejected) -> Fault:
    if rejected.reason is RejectReason.NOT_JSON and not line.is_ended:
        rejected = Rejected(RejectReason.TRUNCATED, "the last line has no end: its writer was cut off")
    return Fault(rejected.reason, rejected.detail, bytes(line.raw) if len(line.raw) <= RAW_BYTES else None)
