"""The row of a source in few bytes: what it has alone is packed, what it shares with many lies in one row for all.

Guarantees: what is unpacked says of a source what its row said, but for its time, its counts of tokens, its stop, and
the seed from which its group descends; `source` is left where there is none, so where it was imported. Leaves out: how
rows lie on the index (`rolloutlog.buffer.index.row_codec`).
"""

from __future__ import annotations

from operator import attrgetter
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from rolloutlog.buffer.index.packed_anchors import places_of
from rolloutlog.buffer.index.rollout_row import RolloutRow
from rolloutlog.contract.policies import Policy


class _Own(NamedTuple):
    """What is a record's own."""

    offset: int
    size: int
    sha256: bytes
    reward: float | None
    oldest: Policy | None
    newest: Policy | None
    source: str | None
    step: int | None
    snapshots: tuple[int, ...] | None
    packed: bytes


_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(_Own)
shared_facts = attrgetter(
    "group_size",
    "needed",
    "status",
    "kind",
    "env",
    "derivation",
    "depth",
    "container",
    "unfit",
    "faulty",
    "replay_env",
    "namespace",
)
"""What many records share, as a key."""


def packed_row(row: RolloutRow) -> bytes:
    """What a record has alone."""
    source = row.source if row.origin is None else None
    seen = row.oldest, row.newest, source, row.step, row.snapshots
    own = row.offset, row.size, row.sha256, row.reward, *seen, row.packed
    return _ENCODER.encode(own)


def unpacked_row(packed: bytes, like: RolloutRow, group: str, member: int, attempt: int) -> RolloutRow:
    """The row that was packed; `like` is one with the same shared facts."""
    own = _DECODER.decode(packed)
    return replace(
        like,
        group=group,
        member=member,
        attempt=attempt,
        timestamp=0,
        tokens=0,
        sampled=0,
        turns=0,
        branches=0,
        origin=None,
        origin_offset=None,
        stop=None,
        dead=False,
        **own._asdict(),
    )


def unpacked_places(packed: bytes) -> tuple[dict[str, list[int]], tuple[int, ...] | None]:
    """Of a packed row its anchors as they are packed, and its snapshots."""
    own = _DECODER.decode(packed)
    return places_of(own.packed), own.snapshots


def like_row(row: RolloutRow) -> RolloutRow:
    """A row with the shared facts of another, to be kept in its place."""
    return replace(row, sha256=b"", packed=b"", source=None, origin=None, group="", snapshots=None, stop=None)
