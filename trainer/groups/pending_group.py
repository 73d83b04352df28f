"""One group on its way to a train step: its fold, what its members sampled, and their payloads while memory allows.

Guarantees: tokens and payloads are of standing records only, so a superseded or rejected attempt leaves nothing behind.
Leaves out: who may join and how members stand (`rolloutlog.buffer.group.group`), and deciding (`decision`).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from rolloutlog.buffer.group.group import Disposition, Group, Shape
from rolloutlog.buffer.group.member import Record
from rolloutlog.contract.events.body import Body
from rolloutlog.contract.record.rollout import Rollout
from rolloutlog.contract.record.slot import Slot
from rolloutlog.contract.vocabulary import Status
from rolloutlog.contract.wire.rejection import Rejected
from rolloutlog.trainer.staleness.verdicts import MemberTokens


@dataclass(slots=True, frozen=True)
class Payload:
    """The body of a standing record, to be decoded when it is drawn."""

    slot: Slot
    body: Body


@dataclass(slots=True)
class PendingGroup:
    """A group that hasn't ended. `offset` and `timestamp` are of its first record, `touched` the newest timestamp.

    `tries` counts how often each member expired. `drawn` while a batch holds it: what comes then is folded, and counts
    only if the batch goes back. `cut`: records of it may have been deleted, so why a member is missing is unknown.
    """

    group: Group
    partition: int
    offset: int
    timestamp: int
    touched: int = 0
    tokens: dict[int, MemberTokens] = field(default_factory=dict[int, MemberTokens])
    payloads: dict[int, Payload] = field(default_factory=dict[int, Payload])
    tries: dict[int, int] = field(default_factory=dict[int, int])
    drawn: bool = False
    cut: bool = False

    @property
    def id(self) -> str:
        """Group id."""
        return self.group.id

    @property
    def payload_bytes(self) -> int:
        """Bytes of payloads in memory."""
        return sum(len(payload.body.value) for payload in self.payloads.values())

    def admit(self, record: Record, rollout: Rollout, payload: Payload | None) -> Disposition:
        """Fold a good record. Raises Rejected, and then nothing changed."""
        slot = rollout.slot
        disposition = self.group.admit(Shape.of(slot), slot.member, record)
        if disposition is Disposition.TAKEN:
            self.forget(slot.member)
            if rollout.status is Status.COMPLETED and slot.attempt > self.group.member(slot.member).expired:
                self.tokens[slot.member] = MemberTokens.of(slot.member, slot.attempt, rollout.trajectory)
                if payload is not None:
                    self.payloads[slot.member] = payload
        return disposition

    def reject(self, slot: Slot, rejected: Rejected) -> None:
        """Fold a bad record whose headers could be read."""
        if rejected.resolves and self.group.reject(Shape.of(slot), slot.member, slot.attempt):
            self.forget(slot.member)

    def spoil(self, member: int, attempt: int) -> None:
        """The payload of a standing record failed when it was drawn: the member is failed(rejected) after all."""
        self.group.spoil(member, attempt)
        self.forget(member)

    def expire(self, member: int, attempt: int) -> None:
        """Fold an expired attempt, once."""
        if self.group.expire(member, attempt) is Disposition.TAKEN:
            self.tries[member] = self.tries.get(member, 0) + 1
            if member in self.tokens and self.tokens[member].attempt <= attempt:
                self.forget(member)

    def forget(self, member: int) -> None:
        """Let go of what a member sampled."""
        self.tokens.pop(member, None)
        self.payloads.pop(member, None)
