"""Rows of the index come back as they were written, and carry what the fold needs (design/exactly-once#index)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from rolloutlog.buffer.derivations.protocol import AnchorPoint
from rolloutlog.buffer.index.packed_anchors import pack
from rolloutlog.buffer.index.rollout_row import RolloutRow
from rolloutlog.buffer.index.round_rows import (
    Drawn,
    DroppedRow,
    GroupsRow,
    Noted,
    NotesRow,
    RestingGroup,
    RoundRow,
    SourcesRow,
    WholeRound,
)
from rolloutlog.buffer.index.row_codec import CODE, SUM_BYTES, decode, encode, facts, row_event
from rolloutlog.buffer.index.rows import (
    AnnotationRow,
    CancelRow,
    CarriedRow,
    ChunkRow,
    EndedRow,
    ExpiryRow,
    FinalRow,
    Row,
    SeedCancelRow,
    SeedRow,
    StateRow,
    TakeRow,
    WantedRow,
)
from rolloutlog.contract.errors import IndexMismatch
from rolloutlog.contract.events.event import Event
from rolloutlog.contract.events.seeds import Seed
from rolloutlog.contract.policies import Policy
from rolloutlog.contract.topics import Topic
from rolloutlog.contract.vocabulary import AnchorKind, RunKind, SeedKind, Status
from rolloutlog.contract.wire.headers import Headers
from rolloutlog.kafka.loop.index_reader import index_row

COUNTS, BIG = st.integers(0, 2**32 - 1), st.integers(0, 2**62)
TEXTS = st.text(st.characters(exclude_categories=("Cs",)), min_size=1, max_size=40)
ANCHORS = st.lists(
    st.builds(AnchorPoint, st.sampled_from(AnchorKind), st.integers(0, 2**31 - 1), st.integers(0, 2**31 - 1)),
    max_size=6,
)
POLICIES = st.builds(Policy, st.integers(0, 2**31 - 1), st.integers(0, 2**31 - 1))
DIGESTS = st.binary(min_size=32, max_size=32)

ROLLOUT_ROWS: Any = st.builds(
    RolloutRow,
    offset=BIG,
    size=COUNTS,
    timestamp=BIG,
    group=TEXTS,
    group_size=st.integers(20, 4096),
    needed=st.integers(1, 20),
    member=st.integers(0, 19),
    attempt=st.integers(1, 2**62),
    status=st.sampled_from(Status),
    rejected=st.just(False),
    kind=st.sampled_from(RunKind),
    sha256=DIGESTS,
    reward=st.none() | st.floats(allow_nan=False),
    tokens=COUNTS,
    sampled=COUNTS,
    turns=COUNTS,
    oldest=st.none() | POLICIES,
    newest=st.none() | POLICIES,
    origin=st.none() | TEXTS,
    origin_offset=st.none() | BIG,
    source=st.none() | TEXTS,
    env=st.none() | TEXTS,
    derivation=st.none() | TEXTS,
    depth=BIG,
    stop=st.none() | TEXTS,
    container=st.booleans(),
    dead=st.booleans(),
    unfit=st.sampled_from(["", "errored"]),
    packed=ANCHORS.map(pack),
    snapshots=st.none() | st.lists(BIG, max_size=4).map(tuple),
    replay_env=st.booleans(),
)


SEED = Seed(id="s", kind=SeedKind.FRESH, group="g", group_size=2, env="sums")
ROW = RolloutRow(
    offset=0,
    size=0,
    timestamp=0,
    group="g",
    group_size=1,
    needed=1,
    member=0,
    attempt=1,
    status=Status.COMPLETED,
    sha256=bytes(32),
)
STATE = StateRow(
    rollouts=1,
    seeds=2,
    group_events=3,
    settings="d",
    needed=4,
    sources_from=5,
    resolved=6,
    drawn=7,
    next_draw=8,
    census={"open": 9},
    begins=10,
    whole=True,
    wanted=None,
    round=WholeRound(4, 9, 1, 2),
)
OTHERS = [
    AnnotationRow(1, "k", "g", 3, 0, 1, True, 0.5),
    TakeRow(1, "k", "g", "s", "w", 60),
    CancelRow(1, "k", "g", 3, [0, 2], "refused"),
    SeedRow(1, "k", "g", SEED),
    SeedCancelRow(1, "k", "g", "s"),
    ExpiryRow(1, "k", "g", 0, 1),
    FinalRow(1, "k", "g", 9, None),
    EndedRow("g"),
    ChunkRow(3, 17, bytes(range(32)), 4, 1_790_000_000_000),
    CarriedRow("g", 7, b"state"),
    GroupsRow(0, 3, [RestingGroup("g", 7, None, b"state")]),
    SourcesRow(
        1,
        4,
        b"1",
        b"2",
        b"3",
        b"4",
        b"5",
        b"6",
        b"7",
        b"8",
        ["g"],
        [(ROW, [1])],
        [Noted(0, None, ["n"])],
        [Drawn(0, 2, [(1, 3, True)])],
        [],
        -1,
    ),
    NotesRow(1, 5, -7, ["n", "o"]),
    DroppedRow(1, 6, [(-7, 0)]),
    WantedRow([1, 5], 9),
    STATE,
]
NAMED: list[Any] = [(TakeRow, "s", "w", 60), (SeedCancelRow, "s"), (ExpiryRow, 0, 1), (FinalRow, 9, None)]


@given(ROLLOUT_ROWS)
def test_a_rollouts_row_comes_back_equal(row: RolloutRow) -> None:
    assert decode(encode(row)) == row


@given(ROLLOUT_ROWS)
def test_a_rejected_rollouts_row_has_no_digest(row: RolloutRow) -> None:
    rejected = replace(row, rejected=True, sha256=b"")
    assert decode(encode(rejected)) == rejected


@given(ANCHORS)
def test_anchors_come_back_by_kind_and_in_their_order(anchors: list[AnchorPoint]) -> None:
    row = replace(ROW, packed=pack(anchors))
    kinds = list(dict.fromkeys(anchor.kind for anchor in anchors))
    assert row.anchors == sorted(anchors, key=lambda anchor: kinds.index(anchor.kind))


def test_the_other_rows_come_back_equal() -> None:
    for row in OTHERS:
        assert decode(encode(row)) == row


ROUND_ROWS = [row for row in OTHERS if isinstance(row, RoundRow)]


@pytest.mark.parametrize("row", ROUND_ROWS, ids=lambda row: type(row).__name__)
def test_a_row_of_a_round_of_which_a_bit_is_another_one_is_refused(row: Row) -> None:
    """By its checksum, wherever it is behind the byte that says the kind (design/buffer#rounds)."""
    value = encode(row)
    for bit in range(8, 8 * len(value)):
        damaged = bytearray(value)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(ValueError, match="isn't as it was written"):
            decode(bytes(damaged))


@pytest.mark.parametrize("row", ROUND_ROWS, ids=lambda row: type(row).__name__)
def test_a_row_of_a_round_of_before_is_read_without_a_checksum(row: Row) -> None:
    assert decode(CODE + encode(row)[1 + SUM_BYTES :]) == row


def test_who_reads_a_damaged_round_is_told_to_fold_the_index_anew() -> None:
    made = row_event(ROUND_ROWS[1], partition=4, source="/buffer/4", now=0)
    damaged = made.value[:-1] + bytes((made.value[-1] ^ 1,))
    event = Event(made.topic, 4, 7, 0, made.key, Headers(made.headers), damaged)
    with pytest.raises(IndexMismatch, match=r"rollout-index/4/7 isn't a row .* as it was written") as told:
        index_row(event)
    assert "buffer reindex" in (told.value.hint or "")


def test_keys_say_their_kind_and_name_one_event() -> None:
    """Else compaction would take one row for another: a seed may be called `dial-3.0.1`, as an attempt is, or as the
    shard row."""
    good = replace(ROW, offset=5, group="dial-3")
    records = [good, replace(good, rejected=True), replace(good, dead=True), replace(good, dead=True, offset=6)]
    hostile = [
        kind(1, name, "dial-3", *rest) for kind, *rest in NAMED for name in ("dial-3.0.1", "shard.state", "state")
    ]
    keys = [row.key for row in [*records, *hostile, STATE]]
    assert len(set(keys)) == len(keys)
    assert keys[:4] == ["rollout/dial-3.0.1", "rejected/dial-3.0.1", "dead/5", "dead/6"]


def test_a_row_lies_on_the_partition_of_what_it_describes() -> None:
    made = row_event(STATE, partition=4, source="/buffer/4", now=0)
    assert (made.topic, made.partition, made.key) == (Topic.ROLLOUT_INDEX, 4, b"state")


OLDER = [
    b"\x01 a row of the first version",
    b'\x09[1,2,3,"d",4,5,6,7,8]',
    b'["take",1,"k"]',
    b"\x10\x00",
    b"\x12\x00",
    b"\x13\x00",
]


@pytest.mark.parametrize("value", [b"", b"\x63[]", *OLDER])
def test_a_row_of_another_version_is_named_not_guessed(value: bytes) -> None:
    with pytest.raises(ValueError, match="unknown to this version"):
        decode(value)


def test_a_row_is_small() -> None:
    """About 200 bytes a rollout on the log (design/exactly-once#index)."""
    row = RolloutRow(
        offset=1_000_000,
        size=17_000,
        timestamp=1_790_000_000_000,
        group="g" * 32,
        group_size=8,
        needed=8,
        member=3,
        attempt=1,
        status=Status.COMPLETED,
        sha256=bytes(32),
        reward=0.5,
        tokens=1_520,
        sampled=1_300,
        turns=4,
        oldest=Policy(0, 41),
        newest=Policy(0, 42),
        origin="s" * 32,
        origin_offset=1_000_000,
        env="arith",
        stop="stop",
        packed=pack([AnchorPoint(AnchorKind.TOOL_CALL, 3, 500)]),
    )
    assert len(encode(row)) < 222


def test_facts_of_a_row_are_what_people_read() -> None:
    """Digest and anchors in words; what seeds carry on `seeds` alone isn't there."""
    shown = facts(replace(ROW, oldest=Policy(0, 4), packed=pack([AnchorPoint(AnchorKind.TOOL_CALL, 3, 500)])))
    assert (shown["digest"], shown["oldest"], shown["status"]) == ("00" * 32, [0, 4], "completed")
    assert shown["anchors"] == [{"kind": "tool-call", "node": 3, "tokens": 500}]
    assert facts(SeedRow(1, "k", "g", SEED))["seed"]["env"] == "sums"
