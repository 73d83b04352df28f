"""What a run of the buffer service must have left on the log, whoever died when (design/exactly-once#loop).

Guarantees: everything is checked from the topics alone. Leaves out: the audit's terms, which need a trainer.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

import orjson

from rolloutlog.buffer.folding.fold import Fold
from rolloutlog.buffer.index.rollout_row import RolloutRow
from rolloutlog.buffer.index.round_rows import RoundRow
from rolloutlog.buffer.index.row_codec import decode
from rolloutlog.buffer.index.rows import CarriedRow, ChunkRow, Row, StateRow, WantedRow
from rolloutlog.buffer.shard.shard import Shard
from rolloutlog.buffer.sources.candidates import Candidate
from rolloutlog.contract.events.body import Resolved
from rolloutlog.contract.events.event import Event
from rolloutlog.contract.events.seeds import Draw, Seed
from rolloutlog.contract.settings import Settings
from rolloutlog.contract.topics import INPUT_TOPICS, Topic
from rolloutlog.kafka.blobs.blob_store import BlobStore, resolve_body
from rolloutlog.kafka.client.connection import Connection
from rolloutlog.kafka.read.reading import read_to_end
from tests.buffer.partition_log import recall

TOPICS = (*INPUT_TOPICS, Topic.ROLLOUT_INDEX)


@dataclass(slots=True)
class PartitionAccount:
    """One partition number of inputs and index, as committed."""

    partition: int
    settings: Settings
    events: dict[Topic, list[Event]] = field(default_factory=dict[Topic, list[Event]])
    bodies: dict[int, Resolved] = field(default_factory=dict[int, Resolved])
    """What claims on `rollouts` stand for, by offset."""

    @property
    def rows(self) -> list[Row]:
        """Rows of the index, in order."""
        return [decode(event.value or b"") for event in self.events[Topic.ROLLOUT_INDEX]]

    @property
    def event_rows(self) -> list[Row]:
        """Those of an event, whose key is theirs alone."""
        return [
            row for row in self.rows if not isinstance(row, CarriedRow | ChunkRow | RoundRow | StateRow | WantedRow)
        ]

    @property
    def seeds(self) -> list[Seed]:
        """Seeds that were emitted, in order."""
        return [Seed.of(event) for event in self.events[Topic.SEEDS] if event.headers.type == "seed.emitted"]

    def restored(self) -> Fold:
        """The fold of the rows that a service restores from."""
        shard = Shard.empty(self.partition, self.settings)
        recall(shard, {event.offset: decode(event.value or b"") for event in self.events[Topic.ROLLOUT_INDEX]})
        return shard.fold

    def folded(self, ends: Mapping[Topic, int]) -> Shard:
        """A shard that has read the inputs anew up to there, topic after topic."""
        shard = Shard.empty(self.partition, self.settings)
        for topic in INPUT_TOPICS:
            for event in self.events[topic]:
                if event.offset < ends[topic]:
                    self._read(shard, event)
            shard.passed(topic, ends[topic])  # markers at the end have no event
        shard.flush(now=0, clock=0.0)  # it forgets what ended
        return shard

    def _read(self, shard: Shard, event: Event) -> None:
        body = self.bodies.get(event.offset) if event.topic is Topic.ROLLOUTS else None
        shard.read(event, body, now=0, clock=0.0)

    def check(self, dead: Collection[object]) -> None:
        """Nothing lost, nothing doubled, the state rebuilt from the rows equals that of the inputs.

        `dead` are the places of dead letters; a repeated equal record has neither row nor dead letter.
        """
        keys = Counter(row.key for row in self.event_rows)
        assert not (twice := [key for key, count in keys.items() if count > 1]), f"rows twice: {twice[:3]}"
        ids = Counter(seed.id for seed in self.seeds)
        assert not (again := [seed for seed, count in ids.items() if count > 1]), f"seeds twice: {again[:3]}"
        restored = self.restored()
        anew = self.folded(restored.next_offsets)
        taken = {row.offset for row, _ in anew.outbox.rows if isinstance(row, RolloutRow) and not row.rejected}
        indexed = {row.offset for row in self.rows if isinstance(row, RolloutRow) and not row.rejected}
        assert indexed == taken, f"partition {self.partition}: lost or invented rows at {sorted(indexed ^ taken)[:5]}"
        assert len(anew.outbox.dead_letters) == len(dead), (
            f"{len(dead)} dead letters on {self.partition}, not {len(anew.outbox.dead_letters)}"
        )
        anew.fold.groups.settle()
        assert restored == anew.fold
        self.check_draws()

    def check_draws(self) -> None:
        """Every derived seed is what its draw says: a function of the fold at its offsets, settings and number."""
        shard = Shard.empty(self.partition, self.settings)
        waiting = {topic: deque(self.events[topic]) for topic in INPUT_TOPICS}
        unread = deque(self._draw_places)
        drawn: dict[int, Candidate] = {}
        for seed, draw in sorted(self.draws, key=lambda pair: pair[1].number):
            ends = {Topic.ROLLOUTS: draw.rollouts, Topic.SEEDS: draw.seeds, Topic.GROUP_EVENTS: draw.group_events}
            for topic, end in ends.items():
                while waiting[topic] and waiting[topic][0].offset < end:
                    self._read(shard, waiting[topic].popleft())
            while unread and unread[0][0] < draw.seeds:
                shard.fold.pool.release(drawn.pop(unread.popleft()[1]))
            rank = shard.fold.pool.live.drawn(self.settings.buffer.salt, self.partition, draw.number)
            _, candidate = shard.fold.pool.take(rank)
            drawn[draw.number] = candidate
            assert seed.source is not None
            assert seed.anchor is not None
            said = (seed.source.where.offset, seed.derivation, seed.anchor.node)
            assert said == candidate.key, f"draw {draw.number} of partition {self.partition}"

    @property
    def draws(self) -> list[tuple[Seed, Draw]]:
        """Derived seeds and their draws."""
        return [(seed, seed.draw) for seed in self.seeds if seed.draw is not None and not seed.asks]

    @property
    def _draw_places(self) -> list[tuple[int, int]]:
        """Where the seeds of draws lie, and their numbers."""
        events = [event for event in self.events[Topic.SEEDS] if event.headers.type == "seed.emitted"]
        found = [(event.offset, Seed.of(event)) for event in events]
        return [(at, seed.draw.number) for at, seed in found if seed.draw is not None and not seed.asks]


async def read_account(
    connection: Connection, settings: Settings, blobs: BlobStore | None = None
) -> list[PartitionAccount]:
    """All partitions."""
    accounts: list[PartitionAccount] = []
    for partition in range(settings.topics.partitions):
        account = PartitionAccount(partition, settings)
        for topic in TOPICS:
            account.events[topic] = [
                event async for batch in read_to_end(connection, topic, partition) for event in batch
            ]
        for event in account.events[Topic.ROLLOUTS]:
            account.bodies[event.offset] = await resolve_body(event, blobs)
        accounts.append(account)
    return accounts


async def dead_letters(connection: Connection) -> list[dict[str, object]]:
    """What was rejected, in order."""
    events = [event async for batch in read_to_end(connection, Topic.DEAD_LETTERS, 0) for event in batch]
    return [orjson.loads(event.value or b"") for event in events]


async def check(connection: Connection, settings: Settings, blobs: BlobStore | None = None) -> list[PartitionAccount]:
    """Read everything and check every partition."""
    accounts = await read_account(connection, settings, blobs)
    letters = await dead_letters(connection)
    places = Counter((letter["topic"], letter["partition"], letter["offset"]) for letter in letters)
    assert max(places.values(), default=1) == 1, "a record was rejected twice"
    for account in accounts:
        account.check({place for place in places if place[1] == account.partition})
    return accounts
