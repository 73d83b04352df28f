"""One group on its way to a train step: its fold, what its members sampled, and their payloads while memory allows.

Guarantees: tokens and payloads are of standing records only, so a superseded or rejected attempt leaves nothing behind;
an event looks at the one member that it speaks of, however large the group is. Leaves out: who may join and how members
stand (`rolloutlog.buffer.group.group`), and deciding (`decision`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from rolloutlog.buffer.group.group import Disposition, Group, Shape
from rolloutlog.buffer.group.member import Record
from rolloutlog.contract.handles import Handle
from rolloutlog.contract.record.rollout import Rollout
from rolloutlog.contract.record.slot import Slot
from rolloutlog.contract.vocabulary import Status
from rolloutlog.contract.wire.rejection import Rejected
from rolloutlog.trainer.groups.announced import Announced
from rolloutlog.trainer.groups.attempts import Attempts
from rolloutlog.trainer.groups.held_payload import Payload, PayloadBytes
from rolloutlog.trainer.groups.member_sets import MemberSets, members_in
from rolloutlog.trainer.groups.named_environment import NamedEnvironment
from rolloutlog.trainer.groups.packed_members import PackedMembers
from rolloutlog.trainer.staleness.verdicts import MemberTokens


@dataclass(slots=True)
class PendingGroup:
    """A group that hasn't ended. `offset` and `timestamp` are of its first record, `touched` the newest timestamp.

    `tries` counts how often each member expired; `asked_at` is the partition's time when one was asked for again last.
    `unread` are members that stand by the word of their headers: their values are read before anything is decided that
    is written. `drawn` while a batch holds it: what comes then is folded, and counts only if the batch goes back.
    `closed`: nobody is asked for anything more, since it had ended once on a timeline that was left; what isn't there
    is cancelled. `cut`: records of it may have been deleted, so why a member is missing is unknown. `attempts` are
    there once one superseded another. `stirred`: something was said of a member that was complete before. `said_size`
    is what its first annotation says of its size, by which nobody judges it. `memory` counts the payloads, which `keep`
    and `let_go` alone add and remove. `namespace` is that of the source where its records lie, "" the own: `named` says
    it.
    `pass_number`: which pass over them this is.
    """

    _group: Group
    partition: int
    offset: int
    timestamp: int
    touched: int = 0
    tokens: dict[int, MemberTokens] = field(default_factory=dict)
    payloads: dict[int, Payload] = field(default_factory=dict)
    tries: dict[int, int] = field(default_factory=dict)
    asked_at: int | None = None
    drawn: bool = False
    cut: bool = False
    closed: bool = False
    attempts: Attempts | None = None
    stirred: bool = False
    said_size: int = 0
    memory: PayloadBytes = field(default_factory=PayloadBytes)
    namespace: str = ""
    pass_number: int = 1
    _unread: dict[int, Announced] = field(default_factory=dict)
    _named: NamedEnvironment = field(default_factory=NamedEnvironment)
    _packed: PackedMembers | None = None
    _sets: MemberSets = field(default_factory=MemberSets)

    @property
    def id(self) -> str:
        """Group id."""
        return self._group.id

    @property
    def env(self) -> str | None:
        """Its environment, None where no record says it."""
        return self._named.env

    @property
    def group(self) -> Group:
        """Who belongs to it and how they stand. Members that wait for others without their values, with nothing said of
        them but what their headers announced, are packed until somebody asks."""
        if self._packed is not None:
            self._unpack()
        return self._group

    @property
    def unread(self) -> dict[int, Announced]:
        """The members that stand by the word of their headers."""
        if self._packed is not None:
            self._unpack()
        return self._unread

    def named(self, handle: Handle) -> Handle:
        """The handle of one of its records, as the log and a loop are told it."""
        return handle._replace(namespace=self.namespace) if self.namespace else handle

    @property
    def size(self) -> int:
        """Members dispatched, as `Group.size` says it."""
        return self._packed.slot.group_size if self._packed else self._group.size

    @property
    def needed(self) -> int:
        """Members needed to train the group, as `Group.needed` says it."""
        return self._packed.slot.needed if self._packed else self._group.needed

    @property
    def complete(self) -> int:
        """How many members are completed with a reward and not expired."""
        return self._sets.complete.bit_count()

    @property
    def complete_members(self) -> list[int]:
        """Those members by offset, as `Group.complete_members` says them."""
        members, numbers = self.group.members, members_in(self._sets.complete)
        found = [(record.handle.offset, i) for i in numbers if (record := members[i].record) is not None]
        return [i for _, i in sorted(found)]

    @property
    def resolved(self) -> bool:
        """True once every member is resolved, as `Group.resolved` says it; in a closed group open ones are, too."""
        return self._sets.are_all_resolved(self.size) or (self.closed and self.size > 0)

    @property
    def is_short(self) -> bool:
        """True where fewer are complete than it needs, others are open, and nobody was asked again or aborted: whoever
        waits for all of them waits on, whatever the time."""
        known = self._packed.slot if self._packed else self._group.shape
        if known is None or self._sets.complete.bit_count() >= known.needed:
            return False
        size = known.group_size if isinstance(known, Slot) else known.size
        asked = self._sets.aborted or self.closed or self.asked_at is not None
        return not asked and not self._sets.are_all_resolved(size)

    @property
    def aborted(self) -> list[int]:
        """Members whose prefix may be resumed."""
        return members_in(self._sets.aborted)

    def just_aborted(self) -> list[int]:
        """Those of them at which nobody has looked yet; asked once."""
        found, self._sets.just_aborted = members_in(self._sets.just_aborted), 0
        return found

    def may_announce(self, slot: Slot) -> bool:
        """True where a record can be taken by its headers, and be taken back: nothing else was said of its member, and
        it agrees with the others."""
        if self._packed is not None:
            return not self._sets.complete >> slot.member & 1 and self._packed.agrees_on(slot)
        member = self.group.members.get(slot.member)
        fresh = member is None or not (member.newest or member.notes or member.rejected >= slot.attempt)
        return fresh and self.group.shape in (None, Shape.of(slot))

    def announce(self, fact: Announced, *, keep: bool) -> None:
        """Fold a record by its headers."""
        kept = fact if keep else fact.by_handle
        if self._pack(kept):
            self._sets.completed(fact.slot.member)
        else:
            self._announce(kept)
        self._named.announced(fact.slot)
        self.memory.held += kept.held

    def _announce(self, fact: Announced) -> None:
        member, group = fact.slot.member, self.group
        new = member not in group.members
        group.admit(Shape.of(fact.slot), member, fact.record)
        self._unread[member] = fact
        if new:
            self._sets.completed(member)
        else:
            self._look(member)

    def _pack(self, fact: Announced) -> bool:
        """Take a member into those that wait packed, if nothing else was said of the group. One whose value is held is
        dear anyway."""
        if fact.event is not None:
            return False
        if self._packed is not None:
            return self._packed.take(fact)
        known = self._group
        if known.members or known.shape is not None or known.hinted is not None:
            return False
        packed = PackedMembers(fact.slot)
        self._packed = packed if packed.take(fact) else None
        return self._packed is not None

    def _unpack(self) -> None:
        packed, self._packed = self._packed, None
        if packed is not None:
            for fact in packed.facts(self.partition):
                self._announce(fact)
            self.stirred = False  # nothing new was said

    def confirm(
        self, rollout: Rollout, record: Record, payload: Payload | None, tokens: MemberTokens | None = None
    ) -> None:
        """The value of an announced record is what its headers say; its `tokens`, where somebody has made them."""
        slot = rollout.slot
        self._drop(slot.member)
        self.group.member(slot.member).record = record
        self._named.read(slot, record.handle.offset)
        self._hold(rollout, payload, tokens)
        self._look(slot.member)

    def disprove(self, slot: Slot, rejected: Rejected | None) -> None:
        """The value of an announced record is bad: as if it had been rejected when it came. None: as if it hadn't come
        at all."""
        self.forget(slot.member)
        self.group.withdraw(slot.member, slot.attempt)
        self._named.withdrawn(slot.member, self.unread)
        if rejected is not None:
            self.reject(slot, rejected)
        self._look(slot.member)

    def admit(self, record: Record, rollout: Rollout, payload: Payload | None) -> Disposition:
        """Fold a good record. Raises Rejected, and then nothing changed."""
        slot = rollout.slot
        before = self.group.members[slot.member].record if slot.member in self.group.members else None
        disposition = self.group.admit(Shape.of(slot), slot.member, record)
        if disposition is Disposition.TAKEN:
            self.forget(slot.member)
            if before is not None:
                self.attempts = self.attempts or Attempts()
                self.attempts.supersede(slot, before)
            self._named.read(slot, record.handle.offset)
            self._hold(rollout, payload)
            self._look(slot.member)
        return disposition

    def _hold(self, rollout: Rollout, payload: Payload | None, tokens: MemberTokens | None = None) -> None:
        """Keep what a record sampled, unless it expired before it came; the payload of a completed one."""
        slot = rollout.slot
        if rollout.status is not Status.FAILED and slot.attempt > self.group.member(slot.member).expired:
            self.tokens[slot.member] = tokens or MemberTokens.of(slot.member, slot.attempt, rollout.trajectory)
            if payload is not None and rollout.status is Status.COMPLETED:
                self.keep(slot.member, payload)

    def reject(self, slot: Slot, rejected: Rejected) -> None:
        """Fold a bad record whose headers could be read."""
        if rejected.resolves and self.group.reject(Shape.of(slot), slot.member, slot.attempt):
            self.forget(slot.member)
            self._look(slot.member)

    def annotate(self, slot: Slot, event_id: str, facts: Mapping[str, Any]) -> None:
        """Fold late facts about an attempt. Raises Rejected, and then nothing changed."""
        self.group.annotate(slot.group_size, slot.member, slot.attempt, event_id, facts)
        self.said_size = self.said_size or slot.group_size
        self._look(slot.member)

    def cancel(self, size: int, members: Iterable[int]) -> None:
        """Fold a cancellation. Raises Rejected, and then nothing changed."""
        listed = tuple(members)
        self.group.cancel(size, listed)
        for member in listed:
            self._look(member)

    def spoil(self, member: int, attempt: int) -> None:
        """The payload of a standing record failed when it was drawn: the member is failed(rejected) after all."""
        self.group.spoil(member, attempt)
        self.forget(member)
        self._look(member)

    def expire(self, member: int, attempt: int, at: int) -> None:
        """Fold an attempt that expired at that time of the partition, once."""
        if self.group.expire(member, attempt) is Disposition.TAKEN:
            self.tries[member] = self.tries.get(member, 0) + 1
            self.asked_at = max(at, self.asked_at or 0)
            if member in self.tokens and self.tokens[member].attempt <= attempt:
                self.forget(member)
            self._look(member)

    def forget(self, member: int) -> None:
        """Let go of what a member sampled."""
        self.tokens.pop(member, None)
        self._drop(member)

    def keep(self, member: int, payload: Payload) -> None:
        """Hold the payload of a member."""
        self._drop(member)
        self.payloads[member] = payload
        self.memory.held += len(payload.body.value)

    def let_go(self) -> None:
        """Hold no payload any more; what is drawn is read again by handle."""
        self.memory.held -= sum(len(payload.body.value) for payload in self.payloads.values())
        self.payloads.clear()
        for member, fact in self.unread.items():
            self.memory.held -= fact.held
            self.unread[member] = fact.by_handle

    def _drop(self, member: int) -> None:
        unread = self.unread
        if member in self.payloads:
            self.memory.held -= len(self.payloads.pop(member).body.value)
        if member in unread:
            self.memory.held -= unread.pop(member).held

    def _look(self, index: int) -> None:
        """Count anew how a member stands, after something was said of it."""
        self.stirred |= self._sets.look(index, self.group.members.get(index))
