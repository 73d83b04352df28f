"""Rows of `rollout-index`: how many a second are written, read and folded, and how large one is.

Guarantees: a rollout's row is measured beside the same facts as JSON, in turns; restoring folds rows of whole groups
that were trained, as a service does at its start. Leaves out: the broker.
"""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterable, Sequence

import msgspec

from bench.report import Figure
from bench.timing import microseconds
from rolloutlog.buffer.derivations.protocol import AnchorPoint
from rolloutlog.buffer.folding.fold import Fold
from rolloutlog.buffer.index.packed_anchors import pack
from rolloutlog.buffer.index.rollout_row import RolloutRow
from rolloutlog.buffer.index.row_codec import decode, encode, facts
from rolloutlog.buffer.index.rows import FinalRow, Row
from rolloutlog.contract.ids import id_of
from rolloutlog.contract.policies import Policy
from rolloutlog.contract.settings import BufferSettings
from rolloutlog.contract.vocabulary import AnchorKind, Status

NAME = "index_rows"
SIZE, GROUPS = 8, 100
ANCHORS = pack(AnchorPoint(AnchorKind.TOOL_CALL, 3 + 2 * turn, 500 * turn) for turn in range(3))


def row(group: str, member: int, offset: int) -> RolloutRow:
    """The row of a completed member."""
    return RolloutRow(
        offset=offset, size=17_000, timestamp=1_790_000_000_000 + offset, group=group, group_size=SIZE, needed=SIZE,
        member=member, attempt=1, status=Status.COMPLETED, sha256=b"Z" * 32, reward=0.625, tokens=1_520, sampled=1_300,
        turns=4, oldest=Policy(0, 41), newest=Policy(0, 42), origin="5eed" * 8, origin_offset=offset // SIZE,
        env="sums", stop="stop", packed=ANCHORS,
    )  # fmt: skip


def rows_of_a_run() -> list[Row]:
    """Rows of trained groups, each with its final event."""
    found: list[Row] = []
    for number in range(GROUPS):
        group = id_of("bench", number)
        found += [row(group, member, number * SIZE + member) for member in range(SIZE)]
        found.append(FinalRow(number, id_of(group, "final"), group, (number + 1) * SIZE, None))
    return found


def restore(values: Sequence[bytes], settings: BufferSettings | None = None) -> Fold:
    """The fold of those rows, from their bytes."""
    fold = Fold.empty(0, settings or BufferSettings())
    for offset, value in enumerate(values):
        read = decode(value)
        fold.apply(read)
        fold.placed(read, offset)
    return fold


def _bytes_kept(rows: Iterable[Row], settings: BufferSettings) -> float:
    """Memory of a record of theirs."""
    values = [encode(each) for each in rows]
    tracemalloc.start()
    fold = restore(values, settings)
    fold.groups.settle()
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return kept / (SIZE * GROUPS)


def measure() -> Iterable[Figure]:
    """Rows per second, and bytes per row."""
    one = row("be7c" * 8, 3, 1_000)
    text = facts(one)
    value, plain = encode(one), msgspec.json.encode(text)
    run = [encode(each) for each in rows_of_a_run()]
    times = microseconds(
        {
            "write": lambda: encode(one),
            "write as JSON": lambda: msgspec.json.encode(text),
            "read": lambda: decode(value),
            "read as JSON": lambda: msgspec.json.decode(plain),
        }
    )
    for name in ("write", "read"):
        ratio = times[f"{name} as JSON"] / times[name]
        yield Figure(
            bench=NAME, name=name, value=1e6 / times[name], unit="rows/s", ratio=ratio, against=f"{name} as JSON"
        )
    whole = microseconds({"restore": lambda: restore(run)}, rounds=30)["restore"]
    yield Figure(bench=NAME, name="restore", value=1e6 * len(run) / whole, unit="rows/s")
    rows, evicted = rows_of_a_run(), BufferSettings(capacity=1)
    opened = [each for each in rows if isinstance(each, RolloutRow)]
    for name, some, settings in (("an ended group", rows, evicted), ("an open group", opened, BufferSettings())):
        yield Figure(bench=NAME, name=name, value=_bytes_kept(some, settings), unit="bytes a record")
    yield Figure(
        bench=NAME, name="a row", value=len(value), unit="bytes", ratio=len(plain) / len(value), against="JSON"
    )
