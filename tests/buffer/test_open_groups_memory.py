"""A record of an open group takes a bounded number of bytes: imports into a namespace without a trainer never end."""

from __future__ import annotations

import tracemalloc
from hashlib import sha256

from rolloutlog.buffer.derivations.protocol import AnchorPoint
from rolloutlog.buffer.folding.fold import Fold
from rolloutlog.buffer.index.packed_anchors import pack
from rolloutlog.buffer.index.rollout_row import RolloutRow
from rolloutlog.buffer.index.row_codec import decode, encode
from rolloutlog.contract.ids import id_of
from rolloutlog.contract.policies import Policy
from rolloutlog.contract.settings import BufferSettings
from rolloutlog.contract.vocabulary import AnchorKind, Status

GROUPS, SIZE = 400, 8
MOST_BYTES = 750
"""Of which some 180 are the source; measured 620 where there are many."""


def row_at(offset: int) -> RolloutRow:
    return RolloutRow(
        offset=1_000_000 + offset, size=17_000 + offset, timestamp=1_790_000_000_000 + offset, needed=SIZE,
        group=id_of("group", offset // SIZE), group_size=SIZE, member=offset % SIZE, attempt=1, env="sums",
        status=Status.COMPLETED, sha256=sha256(b"%d" % offset).digest(), reward=offset % 4 / 4, tokens=1_520,
        sampled=1_300,
        oldest=Policy(0, 400 + offset), newest=Policy(0, 401 + offset), origin=id_of("seed", offset // SIZE),
        origin_offset=offset // SIZE, packed=pack([AnchorPoint(AnchorKind.TOOL_CALL, 3, 500)]),
    )  # fmt: skip


def test_a_record_of_an_open_group_takes_few_bytes() -> None:
    values = [encode(row_at(offset)) for offset in range(GROUPS * SIZE)]
    tracemalloc.start()
    try:
        fold = Fold.empty(0, BufferSettings())
        for offset, value in enumerate(values):
            read = decode(value)
            fold.apply(read)
            fold.placed(read, offset)
        fold.groups.settle()
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(fold.groups.opened) == GROUPS
    assert len(fold.pool.sources) == GROUPS * SIZE
    assert kept / (GROUPS * SIZE) < MOST_BYTES
