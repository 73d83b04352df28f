"""What a shard emits for members of its open groups: seeds that ask for one again, or the end of those given up.

Guarantees: an attempt is asked for once, and a group is cancelled once, until what was emitted comes back as a row.
Seeds for expired members may be held back (`tail_batch`).
Leaves out: which members are due (`re_emission`), and when leases are lost (`leases`). Nothing here is in the fold.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from rolloutlog.buffer.group.leases import Leases
from rolloutlog.buffer.group.open_group import OpenGroup
from rolloutlog.buffer.group.re_emission import MemberRetry, due_retries, members_lost_with
from rolloutlog.buffer.group.tail_batch import TailBatch
from rolloutlog.buffer.shard.lineage import member_seed
from rolloutlog.contract.events.event import Outgoing, cancelled_event
from rolloutlog.contract.events.seeds import Seed, seed_cancelled_event, seed_event
from rolloutlog.contract.wire.rejection import HOSTILE

OUT_OF_ATTEMPTS = "attempts"
UNWRITABLE = "unwritable"
"""Why members are given up: tried too often, or the seed that would ask for them can't be written."""
Attempt = tuple[str, int, int]
"""Group, member, attempt."""


@dataclass(slots=True)
class MemberEmitter:
    """`changed` groups are looked at by the next `emit`; `re_emitted` and `cancelling` are in flight."""

    partition: int
    source: str
    max_attempts: int
    leases: Leases = field(default_factory=Leases)
    tail: TailBatch = field(default_factory=TailBatch)
    changed: set[str] = field(default_factory=set[str])
    re_emitted: set[Attempt] = field(default_factory=set[Attempt])
    cancelling: set[str] = field(default_factory=set[str])

    def take_over(self, groups: Mapping[str, OpenGroup], clock: float) -> None:
        """A new owner: every lease starts afresh, and every open group is looked at."""
        self.leases = Leases()
        for group, opened in groups.items():
            for seed, take in opened.takes.items():
                self.leases.start(seed, group, take.lease_ms, clock)
        self.changed |= groups.keys()

    def emit(self, groups: Mapping[str, OpenGroup], *, now: int, clock: float) -> list[Outgoing]:
        """Everything that is due, of groups that lost a lease or changed, and what was held back long enough."""
        lost = self.leases.lost(clock)
        records: list[Outgoing] = []
        for seed, group in lost:
            records += self._emit(groups.get(group), now, lost_seed=seed, clock=clock)
        for group in sorted(self.changed):
            if group not in groups:
                self.tail.hold(group, (), clock)
            records += self._emit(groups.get(group), now, clock=clock)
        for group in self.tail.due(clock):
            records += self._emit(groups.get(group), now)
        self.changed.clear()
        return records

    def _emit(
        self, opened: OpenGroup | None, now: int, *, lost_seed: str | None = None, clock: float | None = None
    ) -> list[Outgoing]:
        """What is due of one group; at a `clock` expired members are held back, if they are at all."""
        if opened is None or opened.seed is None or opened.group.id in self.cancelling:
            return []
        group, origin = opened.group.id, opened.seed
        lost = members_lost_with(opened, lost_seed) if lost_seed else set[int]()
        retries = [
            retry for retry in due_retries(opened, lost) if (group, retry.member, retry.attempt) not in self.re_emitted
        ]
        if any(retry.attempt > self.max_attempts for retry in retries):
            return self._cancel_open(opened, now, OUT_OF_ATTEMPTS)
        if clock is not None:
            retries = self._held_back(group, retries, clock)
        try:
            records = [self._seed_event(member_seed(opened, origin, retry), now) for retry in retries]
        except HOSTILE:
            return self._cancel_open(opened, now, UNWRITABLE)
        self.re_emitted |= {(group, retry.member, retry.attempt) for retry in retries}
        return records

    def _held_back(self, group: str, retries: list[MemberRetry], clock: float) -> list[MemberRetry]:
        """Those that aren't held for a tail batch."""
        held = [retry for retry in retries if retry.expired and self.tail.size > 1]
        self.tail.hold(group, ((retry.member, retry.attempt) for retry in held), clock)
        return [retry for retry in retries if retry not in held]

    def _seed_event(self, seed: Seed, now: int) -> Outgoing:
        return seed_event(seed, source=self.source, now=now, partition=self.partition)

    def _cancel_open(self, opened: OpenGroup, now: int, reason: str) -> list[Outgoing]:
        """Cancel the open members of a group, and every seed that asks for one of them
        (design/groups#cancellations)."""
        group, members = opened.group, opened.group.open_members
        self.cancelling.add(group.id)
        cancelled = cancelled_event(
            group=group.id,
            group_size=group.size,
            members=members,
            kind=group.kind,
            reason=reason,
            source=self.source,
            now=now,
        )
        return [
            cancelled,
            *(
                seed_cancelled_event(
                    seed=seed, group=group.id, group_size=group.size, reason=reason, source=self.source, now=now
                )
                for seed in opened.seeds
                if any(ask.member in members for ask in opened.asked_by(seed))
            ),
        ]

    def acknowledge_seed(self, seed: Seed) -> None:
        """A seed that was emitted is folded."""
        self.re_emitted -= {(seed.group, ask.member, ask.attempt) for ask in seed.asks}

    def acknowledge_cancel(self, group: str) -> None:
        """A cancellation that was emitted is folded."""
        self.cancelling.discard(group)
