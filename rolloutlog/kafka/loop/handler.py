"""The seam between the partition loop and what it keeps exactly once: the `ShardHandler`.

A shard is the state of one partition number. It is a fold over three input topics, and everything that it says goes
into one transaction together with the offsets up to which it has read:

    rollouts/3 ────┐                     ┌─► rollout-index/3   rows, then the shard row, always last
    seeds/3 ───────┼─► fold ─► flush ────┼─► seeds, rollouts   what it emits (seeds, cancellations)
    group-events/3 ┘     ▲               ├─► dead-letters      what it rejected
                         │               └─► offsets of the group, one per input
                      restore ◄── rollout-index/3

Its life, and what is called when:

    factory    `factory(partition)`: an empty shard
    begin      the index has no shard row yet: where its rows will begin, and the inputs are read from their beginning
    recall     the newest shard row, where the index has one: it says the input offsets, the first row that is
               needed, and the newest chunk (`Checkpoint`)
    recall_chunk  a chunk of what ended; it names the one before, which is read next
    restore    the rows from there to the end, in batches; then it equals the shard that wrote them
    fold_source  what comes before all inputs, part by part until nothing of it is left
    fold       events of the inputs, in order within each topic, in any interleaving. It may read (a claimed body)
    flush      all that is to be written since the last commit; empty where nothing is. It may read payloads and
               render. It is asked after folds, and once a second without any, for what depends on the clock
    committed  the offsets at which those records lie: now the delta counts

Recovery:

    the owner died           our fence aborts its open transaction; we restore, and read its uncommitted inputs again
    it was a zombie          its next transaction is refused (Fenced), and what it held in memory is thrown away
    a flush failed           whether it was committed nobody knows: the shard is thrown away, and the log is asked
    we lose and get it back  kept in memory while the newest row on the index is the one that it wrote last
    offsets disagree         the group's offsets against the shard row: the service stops (IndexMismatch)

So a shard need never undo anything: after a failure no method of it is called again. What it owes: `fold` doesn't raise
for bad records (they become dead letters); a flush after a fold has at least the shard row; what it says is a function
of its rows and inputs, apart from what `Moment` decides (leases). Long work must yield: heartbeats share the thread.

Out of scope: reading across partitions, writing outside a transaction, more than one owner at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from rolloutlog.contract.events.event import Event, Outgoing
from rolloutlog.contract.topics import Topic

Inputs = Mapping[Topic, int]
"""Next offset to read of each input topic, on the shard's partition number."""


@dataclass(slots=True, frozen=True)
class Moment:
    """When a fold or a flush happens. `now`: milliseconds since 1970, for times of events; `clock`: seconds of a
    monotonic clock that means nothing to another process, for leases; `caught_up`: whether this owner has read every
    input up to where it ended when it took over."""

    now: int
    clock: float
    caught_up: bool


@dataclass(slots=True, frozen=True)
class Checkpoint:
    """What a shard row says: how far the inputs were read, the first row that must be there, where the newest chunk
    lies,
    and the first row that a restore reads, if that isn't the first one (design/buffer#rounds)."""

    inputs: Inputs
    needed: int = 0
    chunk: int | None = None
    reads: int | None = None


class ShardHandler(Protocol):
    """The state of one partition; see the module's text for who calls what when."""

    def begin(self, first_row: int) -> None:
        """Start with nothing: the rows of this fold lie at that offset of the index and above."""
        ...

    def recall(self, row: Event) -> Checkpoint:
        """Read the newest shard row. Raises RunMismatch where it was written under other settings,
        IndexMismatch where it can't be read."""
        ...

    def recall_chunk(self, row: Event) -> int | None:
        """Read a chunk; where the one before lies. Raises IndexMismatch where it can't be read."""
        ...

    def restore(self, rows: Sequence[Event]) -> None:
        """Fold a batch of index rows, shard rows among them."""
        ...

    def records_deleted(self, firsts: Inputs) -> None:
        """Where the inputs begin now: what lay before is gone. Say what of it is still needed."""
        ...

    async def fold_source(self, moment: Moment) -> int | None:
        """Fold a part of what comes before all inputs; its events, None where nothing of it is left."""
        ...

    async def fold(self, events: Sequence[Event], moment: Moment) -> None:
        """Fold a batch of events of the inputs."""
        ...

    async def flush(self, inputs: Inputs, moment: Moment) -> Sequence[Outgoing]:
        """What is to be written; `inputs` go into the shard row, which is the last record."""
        ...

    def committed(self, offsets: Sequence[int]) -> None:
        """The flush is on the log; `offsets` are parallel to its records."""
        ...


ShardFactory = Callable[[int], ShardHandler]
