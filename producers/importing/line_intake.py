"""Pass two: a line that was read becomes events, or a count with its reason.

Guarantees: each line ends as exactly one of imported, duplicate, skipped or rejected; a record that the log holds with
other content gets the next attempt, and within one import the first of two different records with one id stands. Leaves
out: reading, Kafka and the clock; `now` is passed in, milliseconds since 1970.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from rolloutlog.contract.events.event import Outgoing
from rolloutlog.contract.events.validation import Rejected
from rolloutlog.contract.policies import Policy
from rolloutlog.contract.record.slot import Slot
from rolloutlog.contract.vocabulary import RejectReason, Status
from rolloutlog.contract.wire.headers import Headers
from rolloutlog.formats.foreign.json_parts import Json
from rolloutlog.formats.foreign.normal_line import Fault, NormalLine, NormalRollout
from rolloutlog.formats.foreign.rejecting import read_or_reject
from rolloutlog.producers.importing.outgoing import (
    fault_event,
    missing_event,
    note_event,
    policy_event,
    rollout_event,
    slot_of,
)
from rolloutlog.producers.importing.parsing.updates import Updates
from rolloutlog.producers.importing.placing.census import Census, Place
from rolloutlog.producers.importing.placing.known import Known, KnownGroup, KnownRollout
from rolloutlog.producers.importing.report import UNKNOWN, EraCounts, Report


class Where(NamedTuple):
    """Where a line stands; lines count from 1."""

    path: str
    line: int

    def __str__(self) -> str:
        return f"{self.path}:{self.line}"


@dataclass(slots=True)
class LineIntake:
    """State of pass two. `run` is the run that the log is of; `policies` those that it knows already.

    `limit` is the longest record, in bytes, where no blob store takes longer ones.
    """

    run: str
    census: Census
    known: Known
    report: Report
    updates: Updates = field(default_factory=Updates)
    policies: set[Policy] = field(default_factory=set[Policy])
    limit: int | None = None

    def events_of(self, line: NormalLine, where: Where, now: int) -> list[Outgoing]:
        """Events of one line, in the order in which they must be on the log."""
        counts = self.report.era(line.era or UNKNOWN)
        counts.read += 1
        if where.line == 1:
            self.census.files.begin(where.path)
        fault = line.fault
        if line.rollout is not None:
            events = read_or_reject(self._rollout_events, line, line.rollout, counts, where, now)
            if not isinstance(events, Rejected):
                return events
            fault = Fault(events.reason, events.detail)
        if fault is not None:
            counts.reject(fault.reason, str(where), fault.detail)
            return self._letter(fault_event(line, fault, path=where.path, number=where.line, now=now))
        counts.skip(self._why_not(line), str(where))
        return []

    def finish(self, now: int) -> list[Outgoing]:
        """At the source's end: cancellations of the members that groups on the log lack."""
        events: list[Outgoing] = []
        for group, counted in self.census.groups.items():
            there = self.known.groups.get(group)
            missing = [member for member in range(counted.size) if there and member not in there.members]
            event = missing_event(group, counted.size, missing, counted.kind, now) if missing else None
            if there is not None and event is not None and is_new(there, event):
                self.report.cancelled += len(missing)
                events.append(event)
        return events

    def _rollout_events(
        self, line: NormalLine, rollout: NormalRollout, counts: EraCounts, where: Where, now: int
    ) -> list[Outgoing]:
        """Raises Rejected, before anything is counted."""
        place = self._place(rollout, where.path)
        if place is None:
            counts.skip("written-meanwhile", str(where))
            return []
        if rollout.reward is None and self.census.whole and not place.scored and not rollout.is_own:
            rollout = _without_result(rollout)
        there = self.known.rollouts.get(place.key)
        older = self.known.older.get(place.key, set())
        number = _attempt(rollout, there, place, older)
        slot = slot_of(rollout, place, number)
        if there is not None and number == there.attempt:
            late = {"reward": rollout.reward} if there.pending and rollout.reward is not None else {}
            note = self._note(line, rollout, slot, late, now)
            counts.duplicates += 1
            there.fresh |= rollout.digest == there.digest or rollout.digest in older
            there.pending &= not late
            return self._new_note(note, place, counts)
        event = self._fitting(rollout_event(line, rollout, slot, now))
        note = self._note(line, rollout, slot, {}, now)
        counts.imported += 1
        counts.changed += there is not None
        self.known.add(place.key, _written(rollout, place, number))
        return [*self._new_policies(rollout, now), event, *self._new_note(note, place, counts)]

    def _note(self, line: NormalLine, rollout: NormalRollout, slot: Slot, late: Json, now: int) -> Outgoing | None:
        """What this copy of a rollout and the updates of its traces add. Raises Rejected(too-large)."""
        notes = rollout.notes | late | self.updates.notes(rollout.identity.traces, rollout.body)
        return self._fitting(note_event(line, slot, notes, now)) if notes else None

    def _new_note(self, note: Outgoing | None, place: Place, counts: EraCounts) -> list[Outgoing]:
        """A note, unless it was said before."""
        if note is None or not is_new(self.known.groups[place.group], note):
            return []
        counts.annotations += 1
        return [note]

    def _fitting(self, event: Outgoing) -> Outgoing:
        """The event, if the log takes it. Raises Rejected(too-large)."""
        if self.limit is not None and event.size > self.limit:
            said = f"its {dict(event.headers)[Headers.type.name].decode()} has {event.size} bytes, above {self.limit}"
            raise Rejected(RejectReason.TOO_LARGE, f"{said}, and no blob store is configured (setting `blobs`)")
        return event

    def _letter(self, letter: Outgoing) -> list[Outgoing]:
        """A dead letter, unless the log has it."""
        event_id = _id_of(letter)
        is_known = event_id in self.known.letters
        self.known.letters.add(event_id)
        return [] if is_known else [letter]

    def _place(self, rollout: NormalRollout, path: str) -> Place | None:
        rollout.identity = self.census.identified(rollout.identity, path)
        if self.census.whole:
            return self.census.place_of(rollout.identity, self.known)
        return self.census.place(rollout.identity, path, self.known)

    def _why_not(self, line: NormalLine) -> str:
        """Why a line that is fine is no rollout."""
        if line.updates is not None and self.census.whole and not self.updates.is_folded(line.updates):
            return "update-of-unknown-trace"
        return line.beside or "blank"

    def _new_policies(self, rollout: NormalRollout, now: int) -> list[Outgoing]:
        found = set(rollout.policies) - self.policies
        self.policies |= found
        self.report.policies += len(found)
        return [policy_event(policy, self.run, now) for policy in sorted(found)]


def _attempt(rollout: NormalRollout, there: KnownRollout | None, place: Place, older: set[str]) -> int:
    """Attempt of a record: the known one where the log has what it says, the next where it doesn't. Raises Rejected."""
    if there is None:
        return 1
    is_known = rollout.digest == there.digest or (rollout.digest in older and not there.fresh)
    if is_known or place.is_part or _is_of_score_alone(rollout, there):
        return there.attempt
    is_late_result = there.status is Status.FAILED and rollout.status is Status.COMPLETED
    if there.fresh and not is_late_result:
        raise Rejected(RejectReason.CONFLICT, "a trace of this id was read before, with other content")
    return there.attempt + 1


def _is_of_score_alone(rollout: NormalRollout, there: KnownRollout) -> bool:
    """True where one of two completed copies was written before it was scored: the score is a note."""
    if there.status is not Status.COMPLETED or rollout.status is not Status.COMPLETED:
        return False
    return there.pending or rollout.reward is None


def _without_result(rollout: NormalRollout) -> NormalRollout:
    """A rollout that nobody ever scored: failed, since a group must end."""
    name = Headers.status.name
    headers = [(header, text) for header, text in rollout.headers if header != name]
    rollout.status, rollout.headers = Status.FAILED, [*headers, (name, Status.FAILED.encode())]
    return rollout


def _written(rollout: NormalRollout, place: Place, number: int) -> KnownRollout:
    pending = rollout.status is Status.COMPLETED and rollout.reward is None
    return KnownRollout(
        group=place.group,
        size=place.size,
        member=place.member,
        attempt=number,
        digest=rollout.digest,
        status=rollout.status,
        pending=pending,
        fresh=True,
    )


def is_new(group: KnownGroup, event: Outgoing) -> bool:
    """True if the group has no event of that id yet; from now on it is."""
    event_id = _id_of(event)
    if event_id in group.event_ids:
        return False
    group.event_ids.add(event_id)
    return True


def _id_of(event: Outgoing) -> str:
    return dict(event.headers)[Headers.id.name].decode()
