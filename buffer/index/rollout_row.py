"""A rollout's row: its handle, its slot, and the facts by which it may be selected, in some 220 bytes.

Guarantees: nothing in it depends on settings. Leaves out: the rows of other events (`rows`).
"""

from __future__ import annotations

from typing import Annotated, ClassVar

from msgspec import Meta

from rolloutlog.buffer.derivations.protocol import AnchorPoint
from rolloutlog.buffer.index.index_row import Attempt, IndexRow, Member, Number, Place, Size, Text
from rolloutlog.buffer.index.packed_anchors import places_of, unpack
from rolloutlog.buffer.index.skip import Skip
from rolloutlog.contract.handles import Handle
from rolloutlog.contract.ids import attempt_id
from rolloutlog.contract.policies import Policy
from rolloutlog.contract.vocabulary import EventType, RunKind, Status

KEY, REJECTED_KEY, DEAD_KEY = "rollout", "rejected", "dead"
"""Kinds of keys; no other row's key begins with one of them and a slash."""
DIGEST_BYTES = 32
_SKIPS = frozenset(Skip)


class RolloutRow(IndexRow, frozen=True, kw_only=True, gc=False, tag=KEY):
    """One record of a rollout. `offset` is its own on `rollouts`; `unfit` says why it can't be a source, "" if it can.

    `rejected` marks a bad record that only resolved its slot, which has no digest; `dead` one that says nothing of its
    group and only takes its places: a duplicate, one at odds with its group, or one that came after its group's end.
    `source` is the id that an imported rollout had in its own run. `packed` holds the `anchors`: all places, of every
    kind, at which it could be resumed; `snapshots` are those nodes of them of which the state was kept, None where that
    of no node was; `faulty` are types of derivations that failed on it. `step` is the train step in whose window it was
    made, as far as it is known. `replay_env`: `env` is the name of the replay environment that derived it, as its own
    run recorded it. `namespace` is the source that it lies in, "" where it is on the own log; then `offset` is a place
    below 0.
    """

    TYPE: ClassVar[EventType] = EventType.ROLLOUT_INDEXED
    offset: Place
    size: Number
    timestamp: int
    group: Text
    group_size: Size
    needed: Size
    member: Member
    attempt: Attempt
    status: Status
    rejected: bool = False
    kind: RunKind = RunKind.TRAIN
    sha256: Annotated[bytes, Meta(max_length=DIGEST_BYTES)] = b""
    reward: float | None = None
    tokens: Number = 0
    sampled: Number = 0
    turns: Number = 0
    oldest: Policy | None = None
    newest: Policy | None = None
    origin: str | None = None
    origin_offset: Number | None = None
    source: str | None = None
    env: str | None = None
    derivation: str | None = None
    depth: Number = 0
    stop: str | None = None
    container: bool = False
    unfit: str = ""
    packed: bytes = b""
    dead: bool = False
    step: Number | None = None
    branches: Number = 0
    faulty: tuple[str, ...] = ()
    snapshots: tuple[Number, ...] | None = None
    replay_env: bool = False
    namespace: str = ""

    @property
    def key(self) -> str:
        """Kind and event id; a dead record's, and a source's, is its offset, since the row of an attempt with its id
        may be there, and a
        rejected one has a kind of its own, so that compaction never takes one for the other (design/buffer#pool)."""
        if self.dead or self.namespace:
            return f"{DEAD_KEY}/{self.offset}"
        return f"{REJECTED_KEY if self.rejected else KEY}/{attempt_id(self.group, self.member, self.attempt)}"

    @property
    def digest(self) -> str:
        """SHA-256 of the record's value, as headers say it; "" for a rejected one."""
        return self.sha256.hex()

    @property
    def anchors(self) -> list[AnchorPoint]:
        """Places at which it could be resumed, by kind and node."""
        return unpack(self.packed)

    def handle(self, partition: int) -> Handle:
        """Where the record lies."""
        return Handle.at(partition, self.offset, self.size, self.namespace)

    def check(self) -> None:
        """Refuse what is of its types and yet no shard writes, so that a fold needn't. Raises ValueError."""
        if not (self.member < self.group_size and self.needed <= self.group_size):
            raise ValueError(f"member {self.member} of {self.group_size}, of which {self.needed} are needed")
        if len(self.sha256) != (0 if self.rejected else DIGEST_BYTES):
            raise ValueError(f"a digest of {len(self.sha256)} bytes")
        if self.unfit and self.unfit not in _SKIPS:
            raise ValueError(f"a rollout is unfit for {self.unfit!r}, which is no reason")
        if (self.offset < 0) != bool(self.namespace):
            raise ValueError(f"a place of {self.offset} in {self.namespace!r}")
        places_of(self.packed)
