"""Rows of the index come back as they were written, and carry what the fold needs (design 2)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rolloutlog.buffer import rows
from rolloutlog.buffer.derivations.protocol import AnchorPoint
from rolloutlog.buffer.rollout_row import RolloutRow, pack
from rolloutlog.buffer.rows import CancelRow, StateRow, decode, encode, row_event
from rolloutlog.contract.policies import Policy
from rolloutlog.contract.topics import Topic
from rolloutlog.contract.vocabulary import AnchorKind, RunKind, Status

COUNTS, BIG = st.integers(0, 2**32 - 1), st.integers(0, 2**62)
TEXTS = st.text(st.characters(exclude_categories=("Cs",)), min_size=1, max_size=40)
ANCHORS = st.lists(
    st.builds(AnchorPoint, st.sampled_from(AnchorKind), st.integers(0, 2**31 - 1), st.integers(0, 2**31 - 1)),
    max_size=6,
)
POLICIES = st.builds(Policy, st.integers(0, 2**31 - 1), st.integers(0, 2**31 - 1))
DIGESTS = st.binary(min_size=32, max_size=32).map(bytes.hex)

ROLLOUT_ROWS: Any = st.builds(
    RolloutRow,
    offset=BIG, size=COUNTS, timestamp=BIG, group=TEXTS, group_size=COUNTS, needed=COUNTS, member=COUNTS, attempt=BIG,
    status=st.sampled_from(Status), rejected=st.just(False), kind=st.sampled_from(RunKind), digest=DIGESTS,
    reward=st.none() | st.floats(allow_nan=False), tokens=COUNTS, sampled=COUNTS, turns=COUNTS,
    oldest=st.none() | POLICIES, newest=st.none() | POLICIES, origin=st.none() | TEXTS, origin_offset=st.none() | BIG,
    source=st.none() | TEXTS, env=st.none() | TEXTS, derivation=st.none() | TEXTS, depth=BIG, stop=st.none() | TEXTS,
    container=st.booleans(), unfit=st.sampled_from(["", "errored"]), packed=ANCHORS.map(pack),
)  # fmt: skip


@given(ROLLOUT_ROWS)
def test_a_rollouts_row_comes_back_equal(row: RolloutRow) -> None:
    assert decode(encode(row)) == row


@given(ROLLOUT_ROWS)
def test_a_rejected_rollouts_row_has_no_digest(row: RolloutRow) -> None:
    rejected = row._replace(rejected=True, digest="")
    assert decode(encode(rejected)) == rejected


@given(ANCHORS)
def test_anchors_come_back_equal(anchors: list[AnchorPoint]) -> None:
    row = RolloutRow(0, 0, 0, "g", 1, 1, 0, 1, Status.COMPLETED, packed=pack(anchors))
    assert row.anchors == anchors


def test_the_other_rows_come_back_equal() -> None:
    for row in (CancelRow(1, "k", "g", 3, [0, 2], "refused"), StateRow(1, 2, 3, "d", 4, 5, 6, 7, 8, {"open": 9})):
        assert decode(encode(row)) == row


def test_a_rejected_slot_and_the_good_record_that_replaces_it_have_keys_of_their_own() -> None:
    """Else compaction of the index would take one for the other."""
    good = RolloutRow(5, 0, 0, "g", 1, 1, 0, 1, Status.COMPLETED)
    assert good.key != good._replace(rejected=True).key


def test_a_row_lies_on_the_partition_of_what_it_describes() -> None:
    made = row_event(StateRow(1, 2, 3, "d", 4, 5, 6, 7, 8, {"open": 9}), partition=4, source="/buffer/4", now=0)
    assert (made.topic, made.partition, made.key) == (Topic.ROLLOUT_INDEX, 4, b"shard.state")


@pytest.mark.parametrize("value", [b"", b"\x63[]"])
def test_a_row_of_another_version_is_named_not_guessed(value: bytes) -> None:
    with pytest.raises(ValueError, match="unknown to this version"):
        decode(value)


def test_a_row_is_small() -> None:
    """What design 2 promises of the index: about 200 bytes a rollout."""
    row = RolloutRow(
        1, 17_000, 1, "g" * 32, 8, 8, 3, 1, Status.COMPLETED, digest="0" * 64, origin="s" * 32, env="arith",
        packed=pack([AnchorPoint(AnchorKind.TOOL_CALL, 3, 500)]),
    )  # fmt: skip
    assert len(encode(row)) < 260
    assert "anchors" in rows.facts(row)
