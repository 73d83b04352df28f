"""Lines to what the two passes need of them; pure, so that any process can do it.

Guarantees: whatever a line holds, it comes back as one item, a fault included. Leaves out: files (`lines`), and
processes (`parsers`).
"""

from __future__ import annotations

from rolloutlog.contract import provenance, value
from rolloutlog.contract.checks import Rejected
from rolloutlog.contract.dead_letters import RAW_BYTES
from rolloutlog.contract.headers import Headers
from rolloutlog.contract.ids import digest_of
from rolloutlog.contract.vocabulary import RejectReason
from rolloutlog.producers.importing.era import Beside, Era
from rolloutlog.producers.importing.lines import Line
from rolloutlog.producers.importing.normal import Fault, Normal, NormalRollout
from rolloutlog.producers.importing.readers import READERS, Parsed, glance, parse, read
from rolloutlog.producers.importing.recorded import Identity, Origin


def identify(line: Line, origin: Origin) -> Identity | None:
    """Whose a line is; None where pass two will say why it is no rollout."""
    if line.fault is not None:
        return None
    try:
        return glance(line.text, origin)
    except Rejected:
        return None


def normalise(line: Line, origin: Origin) -> Normal:
    """A line, read whole."""
    normal = Normal(line.byte, len(line.raw), digest_of(line.raw))
    try:
        if line.fault is not None:
            raise line.fault
        if line.text.isspace():
            return normal
        parsed = parse(line.text)
        if isinstance(parsed.form, Beside):
            normal.era, normal.beside = parsed.form.era, parsed.form
        else:
            normal.era = parsed.form
            normal.rollout = _rollout(parsed, parsed.form, origin)
    except Rejected as rejected:
        normal.fault = _fault(line, rejected)
    return normal


def _rollout(parsed: Parsed, era: Era, origin: Origin) -> NormalRollout:
    recorded = read(parsed, era, origin)
    body = value.encode(recorded.trajectory)
    digest = digest_of(body)
    return NormalRollout(
        identity=READERS[era].identify(parsed.glance, origin),
        body=body,
        digest=digest,
        status=recorded.status,
        headers=Headers.encode(provenance.of_value(recorded.status, recorded.trajectory, digest)),
        env=recorded.env,
        policy=recorded.policy,
        dispatch_step=recorded.dispatch_step,
        step=recorded.step,
        filtered=recorded.filtered,
        lineage=recorded.lineage,
        notes=recorded.notes,
    )


def _fault(line: Line, rejected: Rejected) -> Fault:
    if rejected.reason is RejectReason.NOT_JSON and not line.is_ended:
        rejected = Rejected(RejectReason.TRUNCATED, "the last line has no end: its writer was cut off")
    return Fault(rejected.reason, rejected.detail, bytes(line.raw) if len(line.raw) <= RAW_BYTES else None)
