"""Pass two: a line becomes events, or a count with its reason.

Guarantees: each line ends as exactly one of imported, duplicate, skipped or rejected; a record that the log holds with
other content gets the next attempt, and within one import the first of two different records with one id stands. Leaves
out: files, Kafka and the clock; `now` is passed in, milliseconds since 1970.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from rolloutlog.contract import value
from rolloutlog.contract.checks import Rejected
from rolloutlog.contract.dead_letters import rejected_line
from rolloutlog.contract.events import Outgoing
from rolloutlog.contract.headers import Headers
from rolloutlog.contract.ids import digest_of
from rolloutlog.contract.policies import Policy
from rolloutlog.contract.policy_events import policy_imported
from rolloutlog.contract.vocabulary import RejectReason, Status
from rolloutlog.producers.importing.census import Census, Place
from rolloutlog.producers.importing.era import Beside, Era
from rolloutlog.producers.importing.glance import Span
from rolloutlog.producers.importing.known import Known, KnownGroup, KnownRollout
from rolloutlog.producers.importing.lines import Line
from rolloutlog.producers.importing.outgoing import missing_event, note_event, recorded_event, slot_of, source_of
from rolloutlog.producers.importing.readers import READERS, Parsed, parse, read
from rolloutlog.producers.importing.report import UNKNOWN, EraCounts, Report

TIMELINE = 0
"""Recorded policies are of timeline 0 (design 4)."""


@dataclass(slots=True)
class Intake:
    """State of pass two. `run` is the run that the log is of; `policies` those that it knows already."""

    run: str
    census: Census
    known: Known
    report: Report
    policies: set[Policy] = field(default_factory=set[Policy])

    def take(self, line: Line, now: int) -> list[Outgoing]:
        """Events of one line, in the order in which they must be on the log."""
        era = UNKNOWN
        try:
            if line.fault is not None:
                raise line.fault
            if not line.raw.strip():
                self._counts(era).skip("blank", line.where)
                return []
            parsed = parse(line.raw)
            form = parsed.form
            if isinstance(form, Beside):
                self._counts(form.era).skip(form, line.where)
                return []
            era = form
            return self._take_rollout(line, parsed, form, now)
        except Rejected as rejected:
            return [self._reject(era, line, rejected, now)]

    def finish(self, now: int) -> list[Outgoing]:
        """At the source's end: cancellations of the members that groups on the log lack."""
        events: list[Outgoing] = []
        for group, counted in self.census.groups.items():
            there = self.known.groups.get(group)
            if there is None:
                continue
            present = {rollout.member for rollout in there.rollouts.values()}
            missing = [member for member in range(counted.size) if member not in present]
            event = missing_event(group, counted.size, missing, now) if missing else None
            if event is not None and _is_new(there, event):
                self.report.cancelled += len(missing)
                events.append(event)
        return events

    def _counts(self, era: str) -> EraCounts:
        counts = self.report.era(era)
        counts.read += 1
        return counts

    def _reject(self, era: str, line: Line, rejected: Rejected, now: int) -> Outgoing:
        if rejected.reason is RejectReason.NOT_JSON and not line.ended:
            rejected = Rejected(RejectReason.TRUNCATED, "the last line has no end: its writer was cut off")
        self._counts(era).reject(rejected.reason, line.where)
        return rejected_line(
            line.raw, rejected, path=line.file.shown, line=line.number, byte=line.byte, source=source_of(era), now=now
        )

    def _take_rollout(self, line: Line, parsed: Parsed, era: Era, now: int) -> list[Outgoing]:
        """Raises Rejected, before anything is counted."""
        origin = line.file.origin
        recorded = read(parsed, era, origin)
        identity = READERS[era].identify(parsed.glance, origin)
        place = self.census.place_of(identity)
        if place is None or place.member >= place.size:
            self._counts(era).skip("group-full" if place else "written-meanwhile", line.where)
            return []
        body = value.encode(recorded.trajectory)
        digest = digest_of(body)
        group = self.known.groups.setdefault(place.group, KnownGroup(place.size))
        there = group.rollouts.get(place.key)
        attempt = _attempt(recorded.status, there, digest, place)
        counts = self._counts(era)
        slot = slot_of(recorded, identity, place, attempt)
        events: list[Outgoing] = []
        if there is not None and attempt == there.attempt:
            counts.duplicates += 1
        else:
            counts.imported += 1
            counts.changed += there is not None
            group.rollouts[place.key] = KnownRollout(place.member, attempt, digest, recorded.status, fresh=True)
            event = recorded_event(recorded, slot, body, digest, raw_digest=digest_of(line.raw), era=era, now=now)
            events = [*self._new_policies(recorded.policy, era, now), event]
        if recorded.notes and _is_new(group, note := note_event(recorded, slot, era=era, now=now)):
            counts.annotations += 1
            events.append(note)
        return events

    def _new_policies(self, span: Span | None, era: Era, now: int) -> list[Outgoing]:
        if span is None:
            return []
        versions = {Policy(TIMELINE, span.start), Policy(TIMELINE, span.end)} - self.policies
        self.policies |= versions
        self.report.policies += len(versions)
        return [policy_imported(policy, run=self.run, source=source_of(era), now=now) for policy in sorted(versions)]


def _attempt(status: Status, there: KnownRollout | None, digest: str, place: Place) -> int:
    """Attempt of a record: the known one where it says the same, the next where it doesn't. Raises Rejected."""
    if there is None:
        return 1
    if there.digest == digest or place.is_part:
        return there.attempt
    is_late_result = there.status is Status.FAILED and status is Status.COMPLETED
    if there.fresh and not is_late_result:
        raise Rejected(RejectReason.CONFLICT, "a trace of this id was read before, with other content")
    return there.attempt + 1


def _is_new(group: KnownGroup, event: Outgoing) -> bool:
    """True if that wasn't said of the group before; from now on it is."""
    said = dict(event.headers)[Headers.id.name].decode()
    if said in group.said:
        return False
    group.said.add(said)
    return True
