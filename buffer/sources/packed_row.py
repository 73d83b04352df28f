"""The row of a source in few bytes: what it has alone is packed, what it shares with many lies in one row for all.

Guarantees: what is unpacked says of a source what its row said, but for its time, its counts of tokens, its stop, and
the seed from which its group descends; `source` is left where there is none, so where it was imported. Leaves out: its
offset, group and reward, which are columns (`source_columns`), and how rows lie on the index
(`rolloutlog.buffer.index.row_codec`).
"""

from __future__ import annotations

from operator import attrgetter
from typing import Annotated, NamedTuple

import msgspec
from msgspec import Meta
from msgspec.structs import replace

from rolloutlog.buffer.index.index_row import Attempt, Member, Number
from rolloutlog.buffer.index.rollout_row import DIGEST_BYTES, RolloutRow
from rolloutlog.contract.policies import Policy


class OwnFacts(NamedTuple):
    """What is a record's own."""

    member: Member
    attempt: Attempt
    size: Number
    sha256: Annotated[bytes, Meta(min_length=DIGEST_BYTES, max_length=DIGEST_BYTES)]
    oldest: Policy | None
    newest: Policy | None
    source: str | None
    step: Number | None
    snapshots: tuple[Number, ...] | None
    packed: bytes


_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(OwnFacts)
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
    return _ENCODER.encode(
        (
            row.member,
            row.attempt,
            row.size,
            row.sha256,
            row.oldest,
            row.newest,
            source,
            row.step,
            row.snapshots,
            row.packed,
        )
    )


def own_facts(packed: bytes | memoryview) -> OwnFacts:
    """What was packed. Raises ValueError."""
    return _DECODER.decode(packed)


def unpacked_row(own: OwnFacts, like: RolloutRow, offset: int, group: str, reward: float | None) -> RolloutRow:
    """The row that was packed; `like` is one with the same shared facts."""
    return replace(like, offset=offset, group=group, reward=reward, **own._asdict())


def like_row(row: RolloutRow) -> RolloutRow:
    """A row with the shared facts of another, and nothing else, to be kept in its place."""
    return replace(
        row,
        sha256=b"",
        packed=b"",
        source=None,
        origin=None,
        origin_offset=None,
        group="",
        snapshots=None,
        stop=None,
        timestamp=0,
        tokens=0,
        sampled=0,
        turns=0,
        branches=0,
        dead=False,
    )
