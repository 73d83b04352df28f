"""The audit: what became of every rollout, from the topics alone (design/groups#accounting).

Guarantees: ends are fixed before anything is read, in the order index, seeds, group-events, dead-letters,
policy-versions, rollouts, so that no event names a record that isn't read; an open transaction makes `ok` null, never
true. Partitions are read one by one. Leaves out: the rules (`ledger`), and sealing counts before records are deleted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from rolloutlog.buffer.index.rollout_row import RolloutRow
from rolloutlog.consumers.audit.counts import Counts
from rolloutlog.consumers.audit.ledger import PartitionLedger
from rolloutlog.consumers.audit.small_topics import Place, SmallTopics
from rolloutlog.consumers.audit.violations import Violation, repeated_seeds
from rolloutlog.contract.events.event import Event
from rolloutlog.contract.roles import Role
from rolloutlog.contract.settings import Settings
from rolloutlog.contract.topics import Topic
from rolloutlog.kafka.client.connection import Connection, connect
from rolloutlog.kafka.loop.index_reader import read_index
from rolloutlog.kafka.read.ends import Ends, ends
from rolloutlog.kafka.read.tail import Tail

ORDER = (
    Topic.ROLLOUT_INDEX,
    Topic.SEEDS,
    Topic.GROUP_EVENTS,
    Topic.DEAD_LETTERS,
    Topic.POLICY_VERSIONS,
    Topic.ROLLOUTS,
)
OnProgress = Callable[[int, int], None]
"""Called with partitions read and their number."""


@dataclass(slots=True)
class Audit:
    """The answer. `ok` is None while a transaction is open."""

    counts: Counts = field(default_factory=Counts)
    violations: list[Violation] = field(default_factory=list[Violation])
    open_transactions: list[str] = field(default_factory=list[str])

    @property
    def ok(self) -> bool | None:
        """True, a proven False, or None where it can't be decided yet."""
        if self.violations or self.counts.accounted != self.counts.produced:
            return False
        return None if self.open_transactions else True

    def as_json(self) -> dict[str, Any]:
        """The object that `rolloutlog audit --json` prints (design/groups#accounting)."""
        return {
            **self.counts.as_json(),
            "ok": self.ok,
            "violations": [asdict(violation) for violation in self.violations],
            "open_transactions": self.open_transactions,
        }


async def audit(settings: Settings, on_progress: OnProgress = lambda done, of: None) -> Audit:
    """Read the topics and count. Raises BrokerUnreachable, NotFound (no topics)."""
    connection = await connect(settings, Role.AUDIT)
    known = await ends(connection, ORDER)
    found = Audit(open_transactions=[f"{t}/{p}" for (t, p), end in known.items() if end.is_open])
    small = await _small_topics(connection, known)
    partitions = sorted(partition for topic, partition in known if topic is Topic.ROLLOUTS)
    for done, partition in enumerate(partitions):
        on_progress(done, len(partitions))
        counts, violations = (await _ledger(connection, known, small, partition)).result()
        found.counts.add(counts)
        found.violations += violations
    on_progress(len(partitions), len(partitions))
    found.violations += repeated_seeds(
        (seed, group, partition, offset)
        for seed, group, partition, offset in small.seeds
        if offset not in small.rejected[Topic.SEEDS, partition]
    )
    return found


async def _small_topics(connection: Connection, known: Mapping[Place, Ends]) -> SmallTopics:
    small = SmallTopics(sum(topic is Topic.ROLLOUTS for topic, _ in known))
    places = {place: end for place, end in known.items() if place[0] in (ORDER[1:5])}
    # the history says which finals are live, so it comes first
    for event in await _events(connection, {p: e for p, e in places.items() if p[0] is Topic.POLICY_VERSIONS}):
        small.policies.learn(event)
    for event in await _events(connection, {p: e for p, e in places.items() if p[0] is not Topic.POLICY_VERSIONS}):
        small.fold(event)
    return small


async def _events(connection: Connection, places: Mapping[Place, Ends]) -> list[Event]:
    stops = {place: end.stable for place, end in places.items() if end.stable > end.first}
    if not stops:
        return []
    async with Tail(connection, {place: places[place].first for place in stops}, known=places) as tail:
        return [event async for batch in tail.until(stops) for event in batch]


async def _ledger(
    connection: Connection, known: Mapping[Place, Ends], small: SmallTopics, partition: int
) -> PartitionLedger:
    index = (await read_index(connection, {partition: known[Topic.ROLLOUT_INDEX, partition]}))[partition]
    rollouts = (row async for rows in index.rows() for _, row in rows if isinstance(row, RolloutRow))
    indexed = {row.offset: row.rejected async for row in rollouts}
    folded = None if index.state is None else index.state.rollouts
    oldest = min(indexed, default=folded or 0) if index.is_cut else 0
    end = known[Topic.ROLLOUTS, partition]
    ledger = PartitionLedger(
        partition=partition,
        first=end.first,
        rejected=frozenset(small.rejected[Topic.ROLLOUTS, partition]),
        finals=small.finals.get(partition, []),
        expired=small.expired.get(partition, []),
        indexed=frozenset(indexed),
        folded=folded,
        indexed_from=oldest,
        spoilt=frozenset(offset for offset, rejected in indexed.items() if rejected),
    )
    if end.stable > end.first:
        async with Tail(connection, {(Topic.ROLLOUTS, partition): end.first}, known=known) as tail:
            async for batch in tail.until({(Topic.ROLLOUTS, partition): end.stable}):
                for event in batch:
                    ledger.fold(event)
    return ledger
