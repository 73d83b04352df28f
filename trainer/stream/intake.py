"""Reading `rollouts` into groups: assigned partitions, no consumer group, one assembly each (design/trainer#stream).

Guarantees: events are folded in their order; a completed record by its headers alone where they say all that is needed,
and its value is read when it is asked for, or when another event casts doubt on it: then the group stands as if every
value had been read when it came. A claimed body is fetched before its event is folded; a record of a policy that was
never published is bad, decided only after `policy-versions` was read to its end. Memory is bounded: the caller
stops reading when the intake `is_full` and it has what it needs; past twice the budget new payloads aren't kept, and
are read again by handle when they are drawn. Leaves out: deciding and writing.
"""

from __future__ import annotations

import logging
from collections import Counter, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from rolloutlog.contract.errors import BrokerUnreachable
from rolloutlog.contract.events.event import Event
from rolloutlog.contract.handles import Handle
from rolloutlog.contract.topics import Topic
from rolloutlog.contract.vocabulary import RejectReason
from rolloutlog.contract.wire.rejection import Rejected
from rolloutlog.kafka.blobs.blob_store import BlobStore, resolve_body
from rolloutlog.kafka.loop.collection import SeldomCollected
from rolloutlog.kafka.read.payloads import PayloadReader
from rolloutlog.kafka.read.policy_log import PolicyLog
from rolloutlog.kafka.read.steady_tail import SteadyTail
from rolloutlog.kafka.read.tail import Tail
from rolloutlog.trainer.groups.announced import Announced, announced
from rolloutlog.trainer.groups.arrivals import Arrival, policies_of
from rolloutlog.trainer.groups.assembly import Assembly
from rolloutlog.trainer.groups.eval_rewards import EvalRewards
from rolloutlog.trainer.groups.pending_group import PendingGroup
from rolloutlog.trainer.groups.rollout_facts import Arrived, Bad, Fact, doubts, fact_of, is_rollout
from rolloutlog.trainer.staleness.agents import claimed_policies
from rolloutlog.trainer.stream.loading import read_together

log = logging.getLogger(__name__)


@dataclass(slots=True, frozen=True)
class Budget:
    """What may be held: payload bytes (0: no payload is kept) and groups."""

    payload_bytes: int
    groups: int


@dataclass(slots=True)
class Intake:
    """Assemblies by partition, fed from a tail. `changed` and `rejected_now` are for the caller to take and clear.

    `rejected_before` are records that a dead letter named when this was opened, and why. Without `payloads` every value
    is read when it comes. `rejections` counts bad records by reason until the caller clears it, `evals` what never
    trains.
    """

    tail: Tail
    policies: PolicyLog
    assemblies: Mapping[int, Assembly]
    blobs: BlobStore | None
    budget: Budget
    payloads: PayloadReader | None = None
    rejected_before: Mapping[Handle, RejectReason] = field(default_factory=dict[Handle, RejectReason])
    changed: set[tuple[int, str]] = field(default_factory=set[tuple[int, str]])
    rejected_now: list[tuple[Event, Rejected]] = field(default_factory=list[tuple[Event, Rejected]])
    rejections: Counter[str] = field(default_factory=Counter[str])
    evals: EvalRewards = field(default_factory=EvalRewards)
    seldom: SeldomCollected = field(default_factory=SeldomCollected)
    _polled: deque[Event] = field(default_factory=deque[Event])

    @property
    def partitions(self) -> int:
        """P."""
        return len(self.assemblies)

    @property
    def payload_bytes(self) -> int:
        """Bytes of payloads in memory."""
        return sum(assembly.memory.held for assembly in self.assemblies.values())

    def is_full(self, lent: int = 0) -> bool:
        """True when a budget is reached, by more than the groups that are `lent`: no more is read than is needed."""
        groups = sum(len(assembly.groups) for assembly in self.assemblies.values()) - lent
        return groups >= self.budget.groups or self.payload_bytes >= max(self.budget.payload_bytes, 1)

    async def read(self, timeout_ms: int) -> int:
        """Fold what arrived, waiting at most `timeout_ms` for the first; how many events that were.

        What was polled and couldn't be folded, since reading a claim or a policy failed, is folded by the next call.
        """
        if not self._polled:
            self._polled.extend(await self.tail.poll(timeout_ms))
        count, held = len(self._polled), self.payload_bytes
        with self.seldom:
            while self._polled:
                event = self._polled[0]
                kept = held < 2 * self.budget.payload_bytes
                held += len(event.value or b"") if kept else 0
                await self._fold(event, kept)
                self._polled.popleft()
        for assembly in self.assemblies.values():
            self.changed.update((assembly.partition, pending.id) for pending in assembly.close_void())
        return count

    def begin_again(self, starts: Mapping[int, int]) -> None:
        """Read from these offsets on, once more."""
        self._polled.clear()
        self.changed.clear()
        if isinstance(self.tail, SteadyTail):
            self.tail.rewind({(Topic.ROLLOUTS, number): start for number, start in starts.items()})

    async def position(self, partition: int) -> int:
        """Offset of the next record to come."""
        return await self.tail.position(Topic.ROLLOUTS, partition)

    async def behind(self, stops: Mapping[int, int]) -> bool:
        """True while a partition hasn't been read up to its stop."""
        for partition, stop in stops.items():
            if await self.position(partition) < stop:
                return True
        return False

    async def silent(self) -> set[int]:
        """Partitions that are read to their end now; none while the broker is away, since nobody knows."""
        try:
            return {partition for _, partition in await self.tail.read_out()}
        except BrokerUnreachable:
            return set()

    async def _fold(self, event: Event, keep: bool) -> None:
        if not self._fold_announced(event, keep):
            await self._fold_value(event, keep)

    def _fold_announced(self, event: Event, keep: bool) -> bool:
        """Fold an event by its headers alone, as most can be; False where that won't do."""
        assembly = self.assemblies[event.partition]
        if not assembly.wants(event):
            assembly.pass_by(event)
            return True
        fact = self._announced(event)
        if fact is None:
            return False
        known = assembly.groups.get(fact.group)
        if known is not None and not known.may_announce(fact.slot):
            return False
        self._take(assembly.fold(event, fact, keep_payload=keep))
        return True

    def _announced(self, event: Event) -> Announced | None:
        """The event as its headers say it, if they may be believed for now."""
        if self.payloads is None or self._rejection_of(event) is not None:
            return None
        fact, history = announced(event, self.partitions), self.policies.history
        if fact is None or not (history.knows(fact.oldest) and history.knows(fact.newest)):
            return None
        return fact

    def _rejection_of(self, event: Event) -> RejectReason | None:
        """Why a dead letter named it before this was opened."""
        return self.rejected_before.get(event.handle._replace(size=0)) if self.rejected_before else None

    async def _fold_value(self, event: Event, keep: bool) -> None:
        """Fold an event by what its value says."""
        assembly = self.assemblies[event.partition]
        known, fact = assembly.groups.get(event.headers.group or ""), await self._fact(event)
        if fact is None:
            self.evals.see(event)
        elif known is not None and doubts(fact, known):
            await self.read_values([known])
        if isinstance(fact, Bad):
            self.rejections[str(fact.rejected.reason)] += 1
        self._take(assembly.fold(event, fact, keep_payload=keep))

    def _take(self, pending: PendingGroup | None) -> None:
        """A group that an event changed is for the caller."""
        if pending is not None:
            self.changed.add((pending.partition, pending.id))

    async def read_values(self, groups: Iterable[PendingGroup]) -> None:
        """Read the values of all members of these groups that stand by their headers' word; those that are bad are
        rejected, and those that are gone from the log have failed."""
        unread = [(pending, fact) for pending in groups for fact in pending.unread.values()]
        events = await self._events(fact for _, fact in unread)
        there = [(pending, fact, fact.event or events.get(fact.record.handle)) for pending, fact in unread]
        records = [(fact, event) for _, fact, event in there if event is not None]
        found = iter(await self._judged(records, await read_together(records)))
        for pending, fact, event in there:
            if event is None:
                log.warning("%s is gone from the log", fact.record.handle)
                pending.spoil(fact.slot.member, fact.slot.attempt)
            else:
                self._found(pending, fact, next(found))
            self.changed.add((pending.partition, pending.id))

    async def _events(self, facts: Iterable[Announced]) -> dict[Handle, Event]:
        handles = [fact.record.handle for fact in facts if fact.event is None]
        return await self.payloads.read_those_there(handles) if handles and self.payloads else {}

    async def _judged(self, records: list[tuple[Announced, Event]], found: list[Arrival]) -> list[Fact | None]:
        """The same, unless a policy was never published, or a dead letter names a record."""
        if not self.rejected_before and await self.policies.unknown(policies_of(found)) is None:
            return [*found]
        return [
            await self._known(event, one) if isinstance(one, Arrived) else one
            for (_, event), one in zip(records, found, strict=True)
        ]

    def _found(self, pending: PendingGroup, fact: Announced, found: Fact | None) -> None:
        """Its value was read; unless the group has changed under the hands of whoever read it."""
        if pending.unread.get(fact.slot.member) is not fact:
            return
        match found:
            case Arrived(rollout, record, payload, tokens):
                pending.confirm(rollout, record, payload, tokens)
            case Bad(slot, rejected):
                self.rejections[str(rejected.reason)] += 1
                pending.disprove(slot, rejected)
            case _:
                pending.disprove(fact.slot, None)

    async def _fact(self, event: Event) -> Fact | None:
        body = await resolve_body(event, self.blobs) if is_rollout(event) else None
        fact = fact_of(event, self.partitions, body)
        return await self._known(event, fact) if isinstance(fact, Arrived) else fact

    async def _known(self, event: Event, fact: Arrived) -> Fact | None:
        """The fact, or that its record is bad since a policy was never published, or a dead letter names it; None where
        that says nothing of its slot."""
        if (before := self._rejection_of(event)) is not None:
            rejected = Rejected(before, "rejected before")
            return Bad(fact.rollout.slot, rejected) if rejected.resolves else None
        unknown = await self.policies.unknown(claimed_policies(fact.rollout.trajectory))
        if unknown is None:
            return fact
        rejected = Rejected(RejectReason.POLICY_UNKNOWN, f"policy {unknown} was never published")
        self.rejected_now.append((event, rejected))
        return Bad(fact.rollout.slot, rejected)
