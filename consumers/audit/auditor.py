"""The audit: what became of every rollout, from the topics alone (design/groups#accounting).

Guarantees: ends are fixed before anything is read, in the order index, seeds, group-events, dead-letters,
policy-versions, rollouts, so that no event names a record that isn't read; an open transaction makes `ok` null, never
true. Partitions are read one by one, in the memory of what is open there, eight bytes a seed and sixteen an ended
group. What is sealed is counted by its seal, and not read. Leaves out: the rules (`ledger`).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from rolloutlog.consumers.audit.counts import Counts
from rolloutlog.consumers.audit.partition_reading import PartitionReading
from rolloutlog.consumers.audit.sealing import counts_of, violations_of
from rolloutlog.consumers.audit.seed_ids import PlacedSeed, SeedHashes, is_among, repeated_seeds
from rolloutlog.consumers.audit.small_topics import SmallTopics, seed_of
from rolloutlog.consumers.audit.violations import Violation
from rolloutlog.contract.events.audit_sealed import AuditSeal, read_seals
from rolloutlog.contract.events.event import Event
from rolloutlog.contract.policies import History
from rolloutlog.contract.roles import Role
from rolloutlog.contract.settings import Settings
from rolloutlog.contract.topics import Topic
from rolloutlog.kafka.client.connection import Connection, connect
from rolloutlog.kafka.read.ends import Ends, Place, ends
from rolloutlog.kafka.read.tail import Tail
from rolloutlog.kafka.run_record import RunRecord, read_run
from rolloutlog.kafka.source_log import source_ends, source_of

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
    """The answer. `sealed` counts the records among them whose counts are those of a seal. `ok` is None while a
    transaction is open, or a seal is `unusable`, each with why."""

    counts: Counts = field(default_factory=Counts)
    violations: list[Violation] = field(default_factory=list[Violation])
    open_transactions: list[str] = field(default_factory=list[str])
    unusable: list[str] = field(default_factory=list[str])
    sealed: int = 0

    @property
    def ok(self) -> bool | None:
        """True, a proven False, or None where it can't be decided yet."""
        if self.violations or self.counts.accounted != self.counts.produced:
            return False
        return None if self.open_transactions or self.unusable else True

    def as_json(self) -> dict[str, Any]:
        """The object that `rolloutlog audit --json` prints (design/groups#accounting)."""
        return {
            **self.counts.as_json(),
            "ok": self.ok,
            "violations": [asdict(violation) for violation in self.violations],
            "open_transactions": self.open_transactions,
            "sealed": self.sealed,
            "unusable_seals": self.unusable,
        }

    def begin(self, seal: AuditSeal) -> None:
        """Take in what is sealed of a partition."""
        counts = counts_of(seal)
        self.counts.add(counts)
        self.sealed += counts.produced
        self.violations += violations_of(seal)


async def audit(settings: Settings, on_progress: OnProgress = lambda done, of: None) -> Audit:
    """Read the topics and count. Raises BrokerUnreachable, NotFound (no topics)."""
    connection = await connect(settings, Role.AUDIT)
    run = await read_run(connection)
    known, source = await ends(connection, ORDER), source_of(connection, run) if run.trained_source else None
    if source is not None:  # what is counted lies there (design/trainer#offline)
        known |= await source_ends(source.connection, source.declared)
    found = Audit(open_transactions=[f"{t}/{p}" for (t, p), end in known.items() if end.is_open])
    small = await small_topics(connection, known)
    if source is not None:
        await add_rejected(small, source.connection)
    partitions = sorted(partition for topic, partition in known if topic is Topic.ROLLOUTS)
    seals, found.unusable = usable_seals(await read_run(connection), small.policies.history, known)
    for done, partition in enumerate(partitions):
        on_progress(done, len(partitions))
        is_live, theirs = small.policies.history.is_live, None if source is None else source.connection
        reading = PartitionReading(connection, known, partition, len(partitions), is_live, theirs)
        ledger = await reading.begin(small, seals.get(partition))
        await reading.fold(ledger)
        ledger.finish()
        found.counts.add(ledger.counts)
        found.violations += ledger.violations
    on_progress(len(partitions), len(partitions))
    for seal in seals.values():
        found.begin(seal)
    found.violations += repeated_seeds(await suspected_seeds(connection, known, small, seals))
    return found


def usable_seals(
    run: RunRecord, history: History, known: Mapping[Place, Ends]
) -> tuple[dict[int, AuditSeal], list[str]]:
    """The seals of a run, and why others can't be used: they can't be read, speak of offsets that the log doesn't have,
    or of final events that a resume has made void."""
    seals, wrong = read_seals(run.facts, sum(topic is Topic.ROLLOUTS for topic, _ in known))
    for partition, seal in [*seals.items()]:
        high, place = known[Topic.ROLLOUTS, partition].high, f"the seal of partition {partition} is"
        if seal.rollouts > high:
            wrong.append(f"{place} at offset {seal.rollouts} of rollouts, which end at {high}")
        elif not history.is_live(seal.timeline, seal.step):
            wrong.append(f"{place} of step {seal.step} of timeline {seal.timeline}, which a resume has made void")
        else:
            continue
        del seals[partition]
    return seals, wrong


async def small_topics(connection: Connection, known: Mapping[Place, Ends]) -> SmallTopics:
    """The policies, and what was rejected."""
    small = SmallTopics({place: end.high for place, end in known.items()})
    async for event in _events(connection, known, Topic.POLICY_VERSIONS):
        small.policies.learn(event)
    async for event in _events(connection, known, Topic.DEAD_LETTERS):
        small.reject(event)
    return small


async def add_rejected(small: SmallTopics, source: Connection) -> None:
    """What was rejected where the rollouts lie that are trained here."""
    async for event in _events(source, await ends(source, [Topic.DEAD_LETTERS]), Topic.DEAD_LETTERS):
        small.reject(event)


async def suspected_seeds(
    connection: Connection, known: Mapping[Place, Ends], small: SmallTopics, seals: Mapping[int, AuditSeal]
) -> list[PlacedSeed]:
    """Seeds above the seals that weren't rejected and whose id may have been written twice."""
    starts = {partition: seal.seeds for partition, seal in seals.items()}
    hashes = SeedHashes()
    async for seed in _seeds(connection, known, small, starts):
        hashes.add(seed.id)
    if not (repeated := hashes.repeated()):
        return []
    return [seed async for seed in _seeds(connection, known, small, starts) if is_among(seed.id, repeated)]


async def _seeds(
    connection: Connection, known: Mapping[Place, Ends], small: SmallTopics, starts: Mapping[int, int]
) -> AsyncIterator[PlacedSeed]:
    async for event in _events(connection, known, Topic.SEEDS, starts):
        if event.offset not in small.rejected[Topic.SEEDS, event.partition] and (seed := seed_of(event)) is not None:
            yield seed


async def _events(
    connection: Connection, known: Mapping[Place, Ends], topic: Topic, starts: Mapping[int, int] | None = None
) -> AsyncIterator[Event]:
    """All events of a topic, or those from the starts of partitions on, as they come."""
    first = {place: max(end.first, (starts or {}).get(place[1], 0)) for place, end in known.items()}
    places = {place: end for place, end in known.items() if place[0] is topic and end.stable > first[place]}
    if not places:
        return
    async with Tail(connection, {place: first[place] for place in places}, known=known) as tail:
        async for batch in tail.until({place: end.stable for place, end in places.items()}):
            for event in batch:
                yield event
