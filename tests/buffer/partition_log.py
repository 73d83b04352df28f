"""One partition number of the topics in memory, and a shard that is driven over it as the service drives it.

Guarantees: what a shard says is appended in one go, as a transaction would be; `restored` folds the rows that are on
the index and nothing else. Leaves out: Kafka; the tests of `consumers` run the same shard on a broker.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rolloutlog.buffer.folding.fold import Fold
from rolloutlog.buffer.index.row_codec import decode
from rolloutlog.buffer.index.rows import ChunkRow, Row, StateRow
from rolloutlog.buffer.index.skip import Skip
from rolloutlog.buffer.shard.rendering import Void
from rolloutlog.buffer.shard.shard import Shard
from rolloutlog.contract.events.event import Event, Outgoing
from rolloutlog.contract.events.seeds import Seed
from rolloutlog.contract.events.validation import read_rollout
from rolloutlog.contract.handles import Handle
from rolloutlog.contract.ids import id_of
from rolloutlog.contract.record.trajectory import Trajectory
from rolloutlog.contract.settings import Settings
from rolloutlog.contract.topics import INPUT_TOPICS, Topic
from rolloutlog.contract.vocabulary import AnchorKind
from rolloutlog.contract.wire.headers import Headers

NOW = 1_790_000_000_000


class PartitionLog:
    """Topics as lists of events of one partition."""

    def __init__(self, settings: Settings, partition: int = 0) -> None:
        self.settings, self.partition = settings, partition
        self.topics: dict[Topic, list[Event]] = {topic: [] for topic in Topic}
        self.gone: set[int] = set()
        """Offsets on `rollouts` that retention has deleted."""

    def append(self, *records: Outgoing, topic: Topic | None = None) -> None:
        """Records as they would lie on the log."""
        for record in records:
            at = self.topics[topic or record.topic]
            headers = Headers(record.headers)
            at.append(
                Event(record.topic, self.partition, len(at), record.timestamp or NOW, record.key, headers, record.value)
            )

    @property
    def seeds(self) -> list[Seed]:
        """Seeds that were emitted, in order."""
        events = self.topics[Topic.SEEDS]
        return [Seed.of(event) for event in events if event.headers.type == "seed.emitted"]

    @property
    def rows(self) -> list[Row]:
        """Rows on the index, in order."""
        return [decode(event.value or b"") for event in self.topics[Topic.ROLLOUT_INDEX]]

    @property
    def reasons(self) -> list[str]:
        """Reasons of the dead letters, in order."""
        return [str(event.headers.reason) for event in self.topics[Topic.DEAD_LETTERS]]

    def trajectory(self, handle: Handle) -> Trajectory:
        """What lies at a handle."""
        return read_rollout(self.topics[Topic.ROLLOUTS][handle.offset]).trajectory

    def payload(self, handle: Handle) -> Trajectory | Void:
        """What lies at a handle, unless it is gone."""
        return Void(Skip.GONE, "deleted") if handle.offset in self.gone else self.trajectory(handle)


class Owner:
    """An owner of the partition: a shard and its positions."""

    def __init__(self, log: PartitionLog, clock: float = 0.0) -> None:
        self.log, self.clock = log, clock
        self.shard = Shard.empty(log.partition, log.settings)
        recall(self.shard, dict(enumerate(log.rows)))
        self.positions = dict(self.shard.fold.next_offsets)
        self.ends = {topic: len(log.topics[topic]) for topic in INPUT_TOPICS}

    def read(self, topic: Topic, count: int = 1 << 30) -> None:
        """Fold the next events of one input."""
        events = self.log.topics[topic][self.positions[topic] :][:count]
        self.shard.read_all(events, now=NOW, clock=self.clock)
        self.positions[topic] += len(events)

    def flush(self) -> int:
        """One transaction; the number of its records."""
        caught_up = all(self.positions[topic] >= self.ends[topic] for topic in INPUT_TOPICS)
        for topic, offset in self.positions.items():
            self.shard.passed(topic, offset)
        while True:
            self.shard.draw(clock=self.clock, caught_up=caught_up)
            for handle in self.shard.missing():
                self.shard.supply(handle, self.log.payload(handle))
            if not self.shard.render(now=NOW):
                break
        records = self.shard.flush(now=NOW, clock=self.clock)
        first = len(self.log.topics[Topic.ROLLOUT_INDEX])
        self.log.append(*records)
        if records:
            index = [record for record in records if record.topic is Topic.ROLLOUT_INDEX]
            offsets = iter(range(first, first + len(index)))
            self.shard.committed([next(offsets) if r.topic is Topic.ROLLOUT_INDEX else -1 for r in records])
        return len(records)

    def settle(self) -> None:
        """Read and flush until nothing is said any more."""
        for _ in range(50):
            for topic in INPUT_TOPICS:
                self.read(topic)
            if not self.flush() and not self.behind:
                return
        raise AssertionError("the shard never comes to rest")

    @property
    def behind(self) -> bool:
        """True while something is unread."""
        return any(len(self.log.topics[topic]) > self.positions[topic] for topic in INPUT_TOPICS)


def recall(shard: Shard, rows: dict[int, Row]) -> None:
    """Restore as the service does: the newest shard row, the chunks that it names, then the rows that it reads."""
    state = next((row for row in reversed(rows.values()) if isinstance(row, StateRow)), None)
    if state is None:
        return
    shard.recall(state)
    at = state.chunk
    while at is not None:
        chunk = rows[at]
        if not isinstance(chunk, ChunkRow):
            raise AssertionError(f"{chunk} where a chunk should lie")
        at = shard.recall_chunk(chunk, at)
    for offset, row in rows.items():
        if offset >= state.reads:
            shard.restore(row, offset)


def needed_of(log: PartitionLog) -> int:
    """From which row on the newest shard row says that a restore reads."""
    return next(row.needed for row in reversed(log.rows) if isinstance(row, StateRow))


def restored(log: PartitionLog) -> Fold:
    """The fold of the rows that are on the index."""
    return Owner(log).shard.fold


CONTINUES = [{"name": f"continue-{anchor}", "derive": {"type": "continue", "anchor": anchor}} for anchor in AnchorKind]


def settings_of(**changes: Any) -> Settings:
    """Settings of one partition that derives freely."""
    known: dict[str, Any] = {
        "topics": {"partitions": 1},
        "buffer": {"ratio": 10.0, "capacity": 16, "derivations": CONTINUES},
        "trainer": {"batch_groups": 1, "max_open": 41, "overcommit": True},
    }
    merged = {name: {**known.get(name, {}), **changes.get(name, {})} for name in known.keys() | changes.keys()}
    return Settings.model_validate(merged)


def group_id(name: str) -> str:
    """A group id that looks like one."""
    return id_of("test", name)


def compacted(rows: Iterable[Row]) -> list[Row]:
    """What log compaction leaves: the newest row of each key, in the order of the log."""
    listed = list(rows)
    newest = {row.key: position for position, row in enumerate(listed)}
    return [row for position, row in enumerate(listed) if newest[row.key] == position]
