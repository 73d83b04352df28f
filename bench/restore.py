"""Restoring a shard: rows of live records from their bytes, and what ended before them.

Guarantees: rows are read and folded as a service does at its start, the shard row last, and what stays is kept as it
keeps it. Each row has a group, an offset and anchors of its own. Of trained groups all records are still candidates; of
open ones too, and each of their members is kept in detail; those of trained ones are read from a round as well.
Decoding alone stands beside it. Seconds are of CPU; they and bytes are those of ROWS, and the seconds of a million what
that comes to. Leaves out: the broker (`index_reading`), and reading chunks from it one by one.
"""

from __future__ import annotations

import hashlib
import tracemalloc
from collections.abc import Iterable, Sequence
from time import process_time

from msgspec.structs import replace

from bench.index_rows import SIZE, row
from bench.report import Figure
from bench.running_index import RunningIndex
from rolloutlog.buffer.derivations.protocol import AnchorPoint
from rolloutlog.buffer.folding.fold import Fold
from rolloutlog.buffer.folding.row_restoring import RowRestoring
from rolloutlog.buffer.index.ended_chunks import CHUNK
from rolloutlog.buffer.index.packed_anchors import pack
from rolloutlog.buffer.index.rollout_row import RolloutRow
from rolloutlog.buffer.index.round_rows import RoundRow
from rolloutlog.buffer.index.row_codec import decode, encode
from rolloutlog.buffer.index.rows import ChunkRow, FinalRow, StateRow
from rolloutlog.contract.ids import ID_BYTES, id_of
from rolloutlog.contract.settings import BufferSettings
from rolloutlog.contract.topics import Topic
from rolloutlog.contract.vocabulary import AnchorKind
from rolloutlog.kafka.loop.collection import SeldomCollected

NAME = "restore"
ROWS, MILLION = 40_000, 1_000_000
CHUNKS = 488
"""A million ended groups."""
SETTINGS = BufferSettings(capacity=MILLION)


def records(group: str, first: int) -> list[RolloutRow]:
    """Rows of the records of a group, from that offset on."""
    found: list[RolloutRow] = []
    for offset in range(first, first + SIZE):
        points = (AnchorPoint(AnchorKind.TOOL_CALL, 3 + 2 * turn, 500 * turn + offset % 499) for turn in range(3))
        found.append(replace(row(group, offset % SIZE, offset), packed=pack(points), sha256=_digest(offset)))
    return found


def live_rows(*, trained: bool) -> list[bytes]:
    """Rows of records; `trained`: with the final event of each group, of which the seed was deleted before it was
    read."""
    found: list[bytes] = []
    for group in range(ROWS // SIZE):
        name, end = id_of("live", group), (group + 1) * SIZE
        found += map(encode, records(name, end - SIZE))
        if trained:
            found.append(encode(FinalRow(group, id_of(name, "final"), name, end, None)))
    return found


def _digest(offset: int) -> bytes:
    return hashlib.sha256(offset.to_bytes(8, "little")).digest()


def restored(values: Sequence[bytes]) -> Fold:
    """The fold of those rows."""
    fold = Fold.empty(0, SETTINGS)
    for at, value in enumerate(values):
        read = decode(value)
        fold.apply(read)
        fold.placed(read, at)
    fold.passed(Topic.ROLLOUTS, ROWS)
    fold.passed(Topic.SEEDS, ROWS)
    fold.forgettable()
    fold.state_row("digest")
    return fold


def _live(name: str, *, trained: bool) -> Iterable[Figure]:
    """Seconds, rows a second beside reading alone, and bytes kept a row."""
    values = live_rows(trained=trained)
    with SeldomCollected():
        start = process_time()
        for value in values:
            decode(value)
        decoding = process_time() - start
        start = process_time()
        restored(values)
        seconds = process_time() - start
    yield Figure(
        bench=NAME, name=f"{MILLION:,} live rows, {name}", value=seconds * MILLION / ROWS, unit="s", target="<= 10",
        ratio=decoding / seconds, against="decoding alone",
    )  # fmt: skip
    tracemalloc.start()
    fold = restored(values)
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    yield Figure(
        bench=NAME, name=f"a live row, {name}", value=kept / len(fold.pool.sources), unit="bytes", target="< 200"
    )


def round_of(live: Fold, first: int) -> tuple[list[bytes], StateRow]:
    """The rows of a round of all that came to rest in a shard, at `first` and above, and the shard row behind them."""
    live.places.end, live.rounds.transaction = first, first
    live.rounds.least, live.rounds.most_rows = 0, first
    rows = live.resting()
    for offset, each in enumerate(rows, first):
        live.placed(each, offset)
    return [encode(each) for each in rows], live.state_row("digest")


def recalled(values: Sequence[bytes], first: int, state: StateRow) -> Fold:
    """The fold of a round."""
    fold = Fold.empty(0, SETTINGS)
    restoring = RowRestoring(fold)
    restoring.recall(state)
    for offset, value in enumerate(values, first):
        restoring.restore(decode(value), offset)
    restoring.restore(state, first + len(values))
    fold.forgettable()
    fold.state_row("digest")
    return fold


def _in_a_round() -> Iterable[Figure]:
    """Seconds of writing and reading one, and bytes of it and kept, of a source of trained groups."""
    values = live_rows(trained=True)
    live, first = restored(values), len(values)
    with SeldomCollected():
        start = process_time()
        rows, state = round_of(live, first)
        writing = process_time() - start
        start = process_time()
        recalled(rows, first, state)
        seconds = process_time() - start
    yield Figure(
        bench=NAME, name=f"{MILLION:,} live rows in a round", value=seconds * MILLION / ROWS, unit="s", target="<= 10"
    )
    yield Figure(bench=NAME, name="a source written in a round", value=writing * 1e6 / ROWS, unit="us")
    size = sum(map(len, rows)) / ROWS
    yield Figure(bench=NAME, name="a source in a round, on the index", value=size, unit="bytes")
    tracemalloc.start()
    fold = recalled(rows, first, state)
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    yield Figure(
        bench=NAME, name="a live row in a round", value=kept / len(fold.pool.sources), unit="bytes", target="< 200"
    )


def _after_a_run() -> Iterable[Figure]:
    """Seconds of a restore where a round is all but whole, with what came since the one before began, and how many rows
    that are for each source."""
    rows, state = RunningIndex(SETTINGS.model_copy(update={"capacity": ROWS}), records).before_a_round_ends()
    with SeldomCollected():
        start = process_time()
        fold = recalled(rows[state.reads :], state.reads, state)
        seconds = process_time() - start
    if len(fold.pool.sources) != ROWS:
        raise AssertionError(f"{len(fold.pool.sources)} sources of {ROWS}")
    read = sum(not isinstance(decode(value), RoundRow) for value in rows[state.reads :])
    yield Figure(
        bench=NAME, name=f"{MILLION:,} live rows, after a run", value=seconds * MILLION / ROWS, unit="s", target="<= 10"
    )
    yield Figure(bench=NAME, name="rows read besides the round, after a run", value=read * MILLION / ROWS, unit="rows")


def _chunk(number: int) -> bytes:
    names = (hashlib.blake2b(f"{number}.{n}".encode(), digest_size=ID_BYTES).digest() for n in range(CHUNK))
    return encode(ChunkRow(number, number - 1 if number else None, b"".join(names), number + 1))


def _recall(chunks: Sequence[bytes]) -> Fold:
    restoring = RowRestoring(Fold.empty(0, SETTINGS))
    for value in reversed(chunks):
        chunk = decode(value)
        if isinstance(chunk, ChunkRow):
            restoring.recall_chunk(chunk, chunk.number)
    return restoring.fold


def _ended() -> Iterable[Figure]:
    """Seconds and bytes of a million ended groups in one shard."""
    chunks = [_chunk(number) for number in range(CHUNKS)]
    start = process_time()
    ids = _recall(chunks).groups.forgotten
    seconds, count = process_time() - start, len(ids)
    yield Figure(bench=NAME, name=f"{count:,} ended groups", value=seconds, unit="s", target="< 5")
    tracemalloc.start()
    fold = _recall(chunks)
    kept, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    yield Figure(bench=NAME, name="ended groups, kept", value=kept / 1e6, unit="MB", target="< 100")
    yield Figure(bench=NAME, name="ended groups, at most", value=peak / 1e6, unit="MB")
    yield Figure(
        bench=NAME, name="an ended group", value=kept / len(fold.groups.forgotten), unit="bytes", target="<= 64"
    )


def measure() -> Iterable[Figure]:
    """Live rows, and what ended."""
    yield from _live("of trained groups", trained=True)
    yield from _live("of open groups", trained=False)
    yield from _in_a_round()
    yield from _after_a_run()
    yield from _ended()
