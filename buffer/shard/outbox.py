"""What a shard has to say in its next transaction: rows and dead letters (design/exactly-once#index).

Guarantees: a row is here with its bytes, so that what can't be written was refused before it changed anything. Leaves
out: what it emits (`seed_renderer`, `member_emitter`), and when a transaction is due
(`rolloutlog.kafka.loop.shard_run`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from rolloutlog.buffer.index.rollout_row import RolloutRow
from rolloutlog.buffer.index.rows import Row
from rolloutlog.buffer.shard.indexing import written
from rolloutlog.contract.events.dead_letters import derivation_rejected_event, rejected_event
from rolloutlog.contract.events.event import Event, Outgoing
from rolloutlog.contract.ids import rollout_id
from rolloutlog.contract.wire.rejection import Rejected


@dataclass(slots=True)
class Outbox:
    """Of one partition, written by `source`."""

    partition: int
    source: str
    rows: list[tuple[Row, Outgoing]] = field(default_factory=list[tuple[Row, Outgoing]])
    dead_letters: list[Outgoing] = field(default_factory=list[Outgoing])

    def written(self, row: Row, now: int) -> Outgoing:
        """The row as a record. Raises Rejected for one that can't be."""
        return written(row, partition=self.partition, source=self.source, now=now)

    def put(self, row: Row, now: int) -> None:
        """Say a row. Raises Rejected for one that can't be written."""
        self.rows.append((row, self.written(row, now)))

    def reject(self, event: Event, rejected: Rejected, now: int) -> None:
        """Say why a record is bad."""
        self.dead_letters.append(rejected_event(event, rejected, source=self.source, now=now))

    def reject_derivation(self, row: RolloutRow, detail: str, derivation: str | None, now: int) -> None:
        """Say that nothing is derived from that sound record, and why."""
        letter = derivation_rejected_event(
            row.handle(self.partition),
            detail,
            group=row.group,
            rollout=rollout_id(row.group, row.member),
            digest=row.digest,
            derivation=derivation,
            source=self.source,
            now=now,
        )
        self.dead_letters.append(letter)

    def committed(self, offsets: Sequence[int]) -> list[tuple[Row, int]]:
        """All was written, the rows last; where each of them lies. It is empty now."""
        placed = [(row, at) for (row, _), at in zip(self.rows, offsets[-len(self.rows) :], strict=True)]
        self.rows, self.dead_letters = [], []
        return placed
