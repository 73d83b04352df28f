"""The rows of `rollout-index` as everybody reads them who isn't the shard that owns them.

Guarantees: the newest shard row says where the rows begin; what this version can't read, and an index of which rows
were deleted that are still needed, are told by their place (IndexMismatch), whoever reads. Leaves out: what rows mean
(`rolloutlog.buffer.index.rows`), and taking a partition over (`takeover`).
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from dataclasses import dataclass

from rolloutlog.buffer.index.row_codec import decode
from rolloutlog.buffer.index.rows import ChunkRow, Row, StateRow, WantedRow
from rolloutlog.contract.errors import IndexMismatch
from rolloutlog.contract.events.event import Event
from rolloutlog.contract.topics import Topic
from rolloutlog.kafka.client.connection import Connection
from rolloutlog.kafka.loop.changelog import WINDOW, check_beginning, newest_rows, read_chunks
from rolloutlog.kafka.loop.work_queue import Backlog
from rolloutlog.kafka.read.ends import Ends, ends_at
from rolloutlog.kafka.read.reading import read_to_end
from rolloutlog.kafka.read.tail import Tail

Placed = tuple[int, Row]
"""A row and its offset on the index."""


@dataclass(slots=True, frozen=True)
class Index:
    """A partition of the index; `state` is its newest shard row, None where no shard has written any."""

    connection: Connection
    partition: int
    ends: Ends
    state: StateRow | None

    @property
    def is_cut(self) -> bool:
        """True where its first rows, which nothing open needs any more, were deleted."""
        return self.state is not None and self.ends.first > self.state.begins

    def rows(self) -> AsyncIterator[list[Placed]]:
        """All rows of the fold, in batches. Raises IndexMismatch."""
        return self._rows(0 if self.state is None else self.state.begins)

    def needed_rows(self) -> AsyncIterator[list[Placed]]:
        """The rows that a restore reads, after the chunks. Raises IndexMismatch."""
        return self._rows(0 if self.state is None else self.state.reads)

    async def read_chunks(self, read: Callable[[Event], int | None]) -> None:
        """The chunks of ended groups, newest first; `read` says where the one before lies."""
        if self.state is not None:
            await read_chunks(self.connection, Topic.ROLLOUT_INDEX, self.partition, self.state.chunk, read)

    async def _rows(self, first: int) -> AsyncIterator[list[Placed]]:
        if self.state is None:
            return
        start = max(first, self.ends.first)
        async for events in read_to_end(
            self.connection, Topic.ROLLOUT_INDEX, self.partition, start, allow_open=True, known=self.ends
        ):
            yield [(event.offset, index_row(event)) for event in events]


async def read_index(connection: Connection, ends: Mapping[int, Ends]) -> dict[int, Index]:
    """Find the newest shard row of each partition, and look whether what it needs is there. Raises IndexMismatch."""
    rows = await newest_rows(connection, Topic.ROLLOUT_INDEX, ends)
    found: dict[int, Index] = {}
    for partition, end in ends.items():
        state = shard_row(rows[partition]) if partition in rows else None
        check_beginning(connection, Topic.ROLLOUT_INDEX, partition, end, 0 if state is None else state.needed)
        found[partition] = Index(connection, partition, end, state)
    return found


async def backlogs(connection: Connection, partitions: Iterable[int]) -> dict[int, Backlog]:
    """The seeds that nobody has taken, as the shards wrote them down; partitions of which none did are left out.

    An index that can't be read says nothing: its shards' owner tells.
    """
    places = [(Topic.ROLLOUT_INDEX, number) for number in sorted(partitions)]
    ends = {number: end for (_, number), end in (await ends_at(connection, places)).items() if end.stable > end.first}
    found: dict[int, WantedRow] = {}
    before: dict[int, int] = {}
    starts = {number: max(end.first, end.stable - WINDOW) for number, end in ends.items()}
    async for event, row in _tail_of(connection, ends, starts):
        if isinstance(row, WantedRow):
            found[event.partition] = row
        elif isinstance(row, StateRow):
            before[event.partition] = -1 if row.wanted is None else row.wanted
    missing = {number: at for number, at in before.items() if number not in found and at >= ends[number].first}
    until = {number: ends[number]._replace(stable=at + 1) for number, at in missing.items()}
    async for event, row in _tail_of(connection, until, missing):
        if isinstance(row, WantedRow):
            found[event.partition] = row
    return {number: Backlog(row.seeds, row.next) for number, row in found.items()}


async def _tail_of(
    connection: Connection, ends: Mapping[int, Ends], starts: Mapping[int, int]
) -> AsyncIterator[tuple[Event, Row]]:
    """Rows that can be read, from these offsets on."""
    if not starts:
        return
    known = {(Topic.ROLLOUT_INDEX, number): end for number, end in ends.items()}
    async with Tail(connection, {(Topic.ROLLOUT_INDEX, n): start for n, start in starts.items()}, known=known) as tail:
        async for events in tail.until({place: end.stable for place, end in known.items()}):
            for event in events:
                with contextlib.suppress(IndexMismatch):
                    yield event, index_row(event)


def index_row(event: Event) -> Row:
    """The row in a record of the index. Raises IndexMismatch."""
    try:
        return decode(event.value or b"")
    except ValueError as error:
        raise IndexMismatch(f"{_place(event)} isn't a row that this version can read: {error}") from error


def chunk_row(event: Event) -> ChunkRow:
    """The chunk in a record of the index. Raises IndexMismatch."""
    row = index_row(event)
    if not isinstance(row, ChunkRow):
        raise IndexMismatch(f"{_place(event)} isn't a chunk of ended groups")
    return row


def shard_row(event: Event) -> StateRow:
    """The shard row in a record of the index. Raises IndexMismatch, also where a reindex hasn't ended."""
    row = index_row(event)
    if not isinstance(row, StateRow):
        raise IndexMismatch(f"{_place(event)} isn't a shard row")
    if not row.whole:
        raise IndexMismatch(
            f"partition {event.partition} of the index was being folded anew, and that didn't end",
            "run `rolloutlog buffer reindex` again",
        )
    return row


def _place(event: Event) -> str:
    return f"rollout-index/{event.partition}/{event.offset}"
