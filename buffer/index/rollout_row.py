"""A rollout's row: its handle, its slot, and the facts by which it may be selected, in about 200 bytes.

Guarantees: `decode(encode(row)) == row`; bytes that no shard wrote are a ValueError; nothing in it depends on settings.
Leaves out: the rows of other events (`rows`).
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from rolloutlog.buffer.derivations.protocol import AnchorPoint
from rolloutlog.contract.handles import Handle
from rolloutlog.contract.ids import attempt_id
from rolloutlog.contract.policies import Policy
from rolloutlog.contract.record.slot import MAX_GROUP
from rolloutlog.contract.vocabulary import AnchorKind, RunKind, Status

CODE = 16
"""First byte of its value; that of the other rows is `[` (`rows`)."""
KEY, REJECTED_KEY, LATE_KEY = "rollout", "rejected", "late"
"""Kinds of keys; no other row's key begins with one of them and a slash."""


class _Head(NamedTuple):
    """The fixed part, little-endian; `anchors` and the last four are bytes of what lies behind it."""

    code: int
    status: int
    flags: int
    member: int
    group_size: int
    needed: int
    size: int
    tokens: int
    sampled: int
    turns: int
    attempt: int
    offset: int
    timestamp: int
    origin_offset: int
    depth: int
    reward: float
    old_timeline: int
    old_version: int
    new_timeline: int
    new_version: int
    digest: bytes
    anchors: int
    group: int
    origin: int
    source: int
    texts: int


_HEAD = struct.Struct("<BBBxIIIIIIIqqqqqdiiii32sIIIII")
_ANCHOR = struct.Struct("<Bii")
_Texts = tuple[str | None, str | None, str | None, str]
"""Environment, derivation, stop condition, `unfit`."""
_TEXTS = msgspec.json.Decoder(_Texts)

_STATUSES = tuple(Status)
_ANCHORS = tuple(AnchorKind)

_REJECTED, _EVAL, _CONTAINER, _LATE = 1, 2, 4, 8
_ABSENT = -1
_NO_POLICY = (_ABSENT, _ABSENT)


class RolloutRow(NamedTuple):
    """One record of a rollout. `offset` is its own on `rollouts`; `unfit` says why it can't be a source, "" if it can.

    `rejected` marks a bad record that only resolved its slot, `late` one whose group had ended when it was folded.
    `source` is the id that an imported rollout had in its own run. `packed` holds the `anchors`: all places, of every
    kind, at which it could be resumed.
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
    late: bool = False

    @property
    def key(self) -> str:
        """Kind and event id; a late record's is its offset, since the row of an attempt with its id may be there, and a
        rejected one has a kind of its own, so that compaction never takes one for the other (design/buffer#pool)."""
        if self.late:
            return f"{LATE_KEY}/{self.offset}"
        return f"{REJECTED_KEY if self.rejected else KEY}/{attempt_id(self.group, self.member, self.attempt)}"

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
        texts = (
            self.group.encode(), _text(self.origin), _text(self.source),
            msgspec.json.encode((self.env, self.derivation, self.stop, self.unfit)),
        )  # fmt: skip
        head = _HEAD.pack(
            CODE, _STATUSES.index(self.status), flags | _LATE * self.late, self.member, self.group_size, self.needed,
            self.size, self.tokens, self.sampled, self.turns, self.attempt, self.offset, self.timestamp,
            _ABSENT if self.origin_offset is None else self.origin_offset, self.depth,
            math.nan if self.reward is None else self.reward, *(self.oldest or _NO_POLICY),
            *(self.newest or _NO_POLICY), bytes.fromhex(self.digest), len(self.packed), *map(len, texts),
        )  # fmt: skip
        return b"".join((head, *texts, self.packed))

    @classmethod
    def decode(cls, value: bytes) -> RolloutRow:
        """Read a row's value. Raises ValueError, IndexError or struct.error."""
        head = _Head._make(_HEAD.unpack_from(value))
        group = _HEAD.size + head.group
        origin = group + head.origin
        source = origin + head.source
        texts = source + head.texts
        packed, flags, reward = value[texts:], head.flags, head.reward
        _check(head, packed)
        env, derivation, stop, unfit = _TEXTS.decode(value[source:texts])
        return cls(
            offset=head.offset, size=head.size, timestamp=head.timestamp, group=value[_HEAD.size : group].decode(),
            group_size=head.group_size, needed=head.needed, member=head.member, attempt=head.attempt,
            status=_STATUSES[head.status], rejected=bool(flags & _REJECTED),
            kind=RunKind.EVAL if flags & _EVAL else RunKind.TRAIN,
            digest="" if flags & _REJECTED else head.digest.hex(), reward=None if reward != reward else reward,
            tokens=head.tokens, sampled=head.sampled, turns=head.turns,
            oldest=_policy(head.old_timeline, head.old_version), newest=_policy(head.new_timeline, head.new_version),
            origin=value[group:origin].decode() or None, source=value[origin:source].decode() or None,
            origin_offset=None if head.origin_offset == _ABSENT else head.origin_offset, depth=head.depth, env=env,
            derivation=derivation, stop=stop, container=bool(flags & _CONTAINER), unfit=unfit, packed=packed,
            late=bool(flags & _LATE),
        )  # fmt: skip


def _check(head: _Head, packed: bytes) -> None:
    """Refuse what no shard writes, so that a fold needn't. Raises ValueError."""
    slot = 0 <= head.member < head.group_size <= MAX_GROUP and 0 < head.needed <= head.group_size
    if not slot or head.attempt < 1 or head.offset < 0 or head.group == 0:
        raise ValueError(f"attempt {head.attempt} of member {head.member} in a group of {head.group_size}")
    if len(packed) != head.anchors or len(packed) % _ANCHOR.size:
        raise ValueError(f"{len(packed)} bytes of anchors, not {head.anchors}")
    if packed and max(packed[:: _ANCHOR.size]) >= len(_ANCHORS):
        raise ValueError("an anchor of an unknown kind")


def pack(anchors: Iterable[AnchorPoint]) -> bytes:
    """Anchors as they lie in a row."""
    return b"".join(_ANCHOR.pack(_ANCHORS.index(kind), node, tokens) for kind, node, tokens in anchors)


def _policy(timeline: int, version: int) -> Policy | None:
    return None if timeline == _ABSENT else Policy(timeline, version)


def _text(text: str | None) -> bytes:
    return text.encode() if text else b""
