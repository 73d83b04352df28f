"""A rollout's row: its handle, its slot, and the facts by which it may be selected, in about 200 bytes.

Guarantees: `decode(encode(row)) == row`; nothing in it depends on settings. Leaves out: the rows of other events
(`rows`).
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable
from typing import NamedTuple

import orjson

from rolloutlog.buffer.derivations.protocol import AnchorPoint
from rolloutlog.contract.handles import Handle
from rolloutlog.contract.ids import attempt_id
from rolloutlog.contract.policies import Policy
from rolloutlog.contract.vocabulary import AnchorKind, RunKind, Status

_HEAD = struct.Struct("<BBBBIIIIIIIIqqqqqdiiii32s")
"""code, status, flags, unused; member, group size, needed, bytes of anchors, bytes of the value, tokens, sampled,
turns; attempt, offset, timestamp, origin offset, depth; reward; oldest and newest policy; digest."""
_LENGTHS = struct.Struct("<IIII")
_ANCHOR = struct.Struct("<Bii")

_STATUSES = tuple(Status)
_ANCHORS = tuple(AnchorKind)
CODE = 1
"""First byte of its value; those of the other rows are in `rows`."""

_REJECTED, _EVAL, _CONTAINER = 1, 2, 4
_ABSENT = -1
_NO_POLICY = (_ABSENT, _ABSENT)


class RolloutRow(NamedTuple):
    """One record of a rollout. `offset` is its own on `rollouts`; `unfit` says why it can't be a source, "" if it can.

    `rejected` marks a bad record that only resolved its slot. `source` is the id that an imported rollout had in
    its own run. `packed` holds the `anchors`: all places, of every kind, at which it could be resumed.
    """

    offset: int
    size: int
    timestamp: int
    group: str
    group_size: int
    needed: int
    member: int
    attempt: int
    status: Status
    rejected: bool = False
    kind: RunKind = RunKind.TRAIN
    digest: str = ""
    reward: float | None = None
    tokens: int = 0
    sampled: int = 0
    turns: int = 0
    oldest: Policy | None = None
    newest: Policy | None = None
    origin: str | None = None
    origin_offset: int | None = None
    source: str | None = None
    env: str | None = None
    derivation: str | None = None
    depth: int = 0
    stop: str | None = None
    container: bool = False
    unfit: str = ""
    packed: bytes = b""

    @property
    def key(self) -> str:
        """Event id of the attempt; a rejected record has a key of its own, so that a good one doesn't replace its
        row."""
        attempt = attempt_id(self.group, self.member, self.attempt)
        return f"{attempt}.rejected" if self.rejected else attempt

    @property
    def anchors(self) -> list[AnchorPoint]:
        """Places at which it could be resumed, by kind and node."""
        return [AnchorPoint(_ANCHORS[kind], node, tokens) for kind, node, tokens in _ANCHOR.iter_unpack(self.packed)]

    def handle(self, partition: int) -> Handle:
        """Where the record lies."""
        return Handle(partition, self.offset, self.size)

    def encode(self) -> bytes:
        """The row's value."""
        flags = _REJECTED * self.rejected | _EVAL * (self.kind is RunKind.EVAL) | _CONTAINER * self.container
        head = _HEAD.pack(
            CODE, _STATUSES.index(self.status), flags, 0, self.member, self.group_size, self.needed,
            len(self.packed), self.size, self.tokens, self.sampled, self.turns,
            self.attempt, self.offset, self.timestamp, _ABSENT if self.origin_offset is None else self.origin_offset,
            self.depth, math.nan if self.reward is None else self.reward,
            *(self.oldest or _NO_POLICY), *(self.newest or _NO_POLICY), bytes.fromhex(self.digest),
        )  # fmt: skip
        tail = [self.env, self.derivation, self.stop, self.unfit]
        texts = (self.group.encode(), _text(self.origin), _text(self.source), orjson.dumps(tail))
        return b"".join((head, _LENGTHS.pack(*map(len, texts)), *texts, self.packed))

    @classmethod
    def decode(cls, value: bytes) -> RolloutRow:
        """Read a row's value. Raises ValueError or struct.error."""
        status: int
        (
            _, status, flags, _, member, group_size, needed, packed, size, tokens, sampled, turns, attempt, offset,
            timestamp, origin_offset, depth, reward, old_timeline, old_version, new_timeline, new_version, digest,
        ) = _HEAD.unpack_from(value)  # fmt: skip
        at = _HEAD.size + _LENGTHS.size
        lengths = _LENGTHS.unpack_from(value, _HEAD.size)
        ends = [at := at + length for length in lengths]
        group, origin, source, tail = (value[end - length : end] for end, length in zip(ends, lengths, strict=True))
        env, derivation, stop, unfit = orjson.loads(tail)
        return cls(
            offset=offset, size=size, timestamp=timestamp, group=group.decode(), group_size=group_size, needed=needed,
            member=member, attempt=attempt, status=_STATUSES[status], rejected=bool(flags & _REJECTED),
            kind=RunKind.EVAL if flags & _EVAL else RunKind.TRAIN, digest="" if flags & _REJECTED else digest.hex(),
            reward=None if reward != reward else reward, tokens=tokens, sampled=sampled, turns=turns,
            oldest=_policy(old_timeline, old_version), newest=_policy(new_timeline, new_version),
            origin=origin.decode() if origin else None, source=source.decode() if source else None,
            origin_offset=None if origin_offset == _ABSENT else origin_offset, depth=depth, env=env,
            derivation=derivation, stop=stop, container=bool(flags & _CONTAINER), unfit=unfit,
            packed=value[ends[-1] : ends[-1] + packed],
        )  # fmt: skip


def pack(anchors: Iterable[AnchorPoint]) -> bytes:
    """Anchors as they lie in a row."""
    return b"".join(_ANCHOR.pack(_ANCHORS.index(kind), node, tokens) for kind, node, tokens in anchors)


def _policy(timeline: int, version: int) -> Policy | None:
    return None if timeline == _ABSENT else Policy(timeline, version)


def _text(text: str | None) -> bytes:
    return text.encode() if text else b""
