"""Pass two: a line becomes events, or a count with its reason.

Guarantees: each line ends as exactly one of imported, duplicate, skipped or rejected; a record that the log holds with
other content gets the next attempt, and within one import the first of two different records with one id stands. Leaves
out: files, Kafka and the clock; `now` is passed in, milliseconds since 1970.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field

from rolloutlog.contract import value
from rolloutlog.contract.checks import Rejected
from rolloutlog.contract.dead_letters import rejected_line
from rolloutlog.contract.events import Outgoing
from rolloutlog.contract.headers import Headers
from rolloutlog.contract.ids import digest_of
from rolloutlog.contract.policies import Policy
from rolloutlog.contract.policy_events import policy_imported
from rolloutlog.contract.slot import Slot
from rolloutlog.contract.vocabulary import RejectReason, Status
from rolloutlog.producers.importing.census import Census
from rolloutlog.producers.importing.era import Beside, sniff
from rolloutlog.producers.importing.known import Known, KnownGroup, KnownRollout
from rolloutlog.producers.importing.lines import Line
from rolloutlog.producers.importing.outgoing import missing_event, note_event, recorded_event, slot_of, source_of
from rolloutlog.producers.importing.readers import parse, read_rollout
from rolloutlog.producers.importing.recorded import Recorded
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
                self._counts(era).skip("blank", _where(line))
                return []
            raw = parse(line.raw)
            form = sniff(raw)
            if isinstance(form, Beside):
                self._counts(form.value).skip(form.value, _where(line))
                return []
            era = form.value
            recorded = read_rollout(raw, line.file.origin, form)
            recorded.raw_digest = hashlib.sha256(line.raw).hexdigest()
            return self._admit(recorded, self._counts(era), line, now)
        except Rejected as rejected:
            return [self.reject(era, line, _torn(line, rejected), now)]

    def reject(self, era: str, line: Line, rejected: Rejected, now: int) -> Outgoing:
        """Count a line as rejected; its dead letter."""
        self._counts(era).reject(rejected.reason, _where(line))
        return rejected_line(
            line.raw, rejected, path=line.file.shown, line=line.number, byte=line.byte, source=source_of(era), now=now
        )

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

    def _admit(self, recorded: Recorded, counts: EraCounts, line: Line, now: int) -> list[Outgoing]:
        place = self.census.place_of(recorded.identity)
        if place is None:
            counts.skip("written-meanwhile", _where(line))
            return []
        if place.member >= place.size:
            counts.skip("group-full", _where(line))
            return []
        body = value.encode(recorded.trajectory)
        digest = digest_of(body)
        group = self.known.groups.setdefault(place.group, KnownGroup(place.size))
        there = group.rollouts.get(place.key)
        attempt = self._attempt(recorded, there, digest, is_part=place.is_part)
        slot = slot_of(recorded, place.group, place.size, place.member, attempt)
        events: list[Outgoing] = []
        if there is not None and attempt == there.attempt:
            counts.duplicates += 1
        else:
            counts.imported += 1
            counts.changed += there is not None
            group.rollouts[place.key] = KnownRollout(place.member, attempt, digest, recorded.status, fresh=True)
            events = [*self._new_policies(recorded, now), recorded_event(recorded, slot, body, digest, now)]
        return events + self._notes(recorded, slot, group, counts, now)

    def _attempt(self, recorded: Recorded, there: KnownRollout | None, digest: str, *, is_part: bool) -> int:
        """Attempt of a record: the known one where it says the same, the next where it doesn't. Raises Rejected."""
        if there is None:
            return 1
        if there.digest == digest or is_part:
            return there.attempt
        late_result = there.status is Status.FAILED and recorded.status is Status.COMPLETED
        if there.fresh and not late_result:
            raise Rejected(
                RejectReason.CONFLICT, f"trace {recorded.identity.traces[0]} was read with other content before"
            )
        return there.attempt + 1

    def _new_policies(self, recorded: Recorded, now: int) -> list[Outgoing]:
        versions = {Policy(TIMELINE, version) for version in recorded.policy or ()} - self.policies
        self.policies |= versions
        self.report.policies += len(versions)
        source = source_of(recorded.era)
        return [policy_imported(policy, run=self.run, source=source, now=now) for policy in sorted(versions)]

    def _notes(self, recorded: Recorded, slot: Slot, group: KnownGroup, counts: EraCounts, now: int) -> list[Outgoing]:
        if not recorded.notes:
            return []
        event = note_event(recorded, slot, now)
        if not _is_new(group, event):
            return []
        counts.annotations += 1
        return [event]


def _is_new(group: KnownGroup, event: Outgoing) -> bool:
    """True if that wasn't said of the group before; from now on it is."""
    said = dict(event.headers)[Headers.id.name].decode()
    if said in group.said:
        return False
    group.said.add(said)
    return True


def _torn(line: Line, rejected: Rejected) -> Rejected:
    if rejected.reason is RejectReason.NOT_JSON and not line.ended:
        return Rejected(RejectReason.TRUNCATED, "the last line has no end: its writer was cut off")
    return rejected


def _where(line: Line) -> str:
    return f"{line.file.shown}:{line.number}"
