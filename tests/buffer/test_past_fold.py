"""A shard at any cut that it went through, from the rows of its index alone (design/buffer#offline)."""

from __future__ import annotations

from random import Random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from rolloutlog.buffer.index.row_codec import decode
from rolloutlog.buffer.index.rows import Row, StateRow
from rolloutlog.buffer.offline.cut import Coverage, Cut, Horizon
from rolloutlog.buffer.offline.past_fold import PastFold
from rolloutlog.buffer.shard.shard import Shard
from rolloutlog.buffer.sources.pool import Pool
from rolloutlog.contract.events.event import Event
from rolloutlog.contract.topics import INPUT_TOPICS, Topic
from tests.buffer.events_by_hand import final, fresh, rollout
from tests.buffer.partition_log import NOW, Owner, PartitionLog, compacted, settings_of
from tests.buffer.test_fold_is_pure import LOGS, SETTINGS, run

CUTS: Any = st.tuples(st.integers(0, 8), st.integers(0, 4), st.integers(0, 3)).map(lambda offsets: Cut(*offsets))


def folded(topics: dict[Topic, list[Event]], cut: Cut) -> Pool:
    """The pool of a shard that has read the events below a cut, and nothing else."""
    shard = Shard.empty(0, SETTINGS)
    for topic in INPUT_TOPICS:
        for event in topics[topic][: cut.on(topic)]:
            shard.read(event, now=NOW, clock=0.0)
        shard.passed(topic, cut.on(topic))
    return shard.fold.pool


@settings(max_examples=100)
@given(LOGS, st.randoms(use_true_random=False), st.lists(CUTS, min_size=1, max_size=3), st.booleans())
def test_the_candidates_at_a_cut_are_those_of_a_shard_that_read_no_further(
    topics: dict[Topic, list[Event]], random: Random, cuts: list[Cut], compact: bool
) -> None:
    """At one cut after another, however the rows interleave, and also when log compaction was there."""
    rows = [decode(value) for value in run(topics, random)[1]]
    past = PastFold.empty(0, SETTINGS.buffer)
    for row in compacted(rows) if compact else rows:
        past.offer(row)
    for cut in (Cut(*offsets) for offsets in zip(*map(sorted, zip(*cuts, strict=True)), strict=True)):
        past.advance(cut)
        assert past.fold.pool == folded(topics, cut)


@given(LOGS, st.randoms(use_true_random=False), st.integers(0, 9))
def test_a_horizon_is_the_same_cut_before_and_after_compaction_and_its_rows_make_the_pool_of_that_cut(
    topics: dict[Topic, list[Event]], random: Random, offset: int
) -> None:
    rows = [decode(value) for value in run(topics, random)[1]]
    whole, pool = cut_at(offset, rows)
    assert cut_at(offset, compacted(rows)) == (whole, pool)
    assert whole.rollouts <= offset
    assert pool == folded(topics, Cut(offset, *whole[1:]))


def cut_at(offset: int, rows: list[Row]) -> tuple[Cut, Pool]:
    horizon, past = Horizon(offset), PastFold.empty(0, SETTINGS.buffer)
    for row in rows:
        if (said := horizon.taken(row)) is not None:
            past.fold.apply_below_cut(said)
    past.fold.passed(Topic.ROLLOUTS, offset)
    return horizon.below, past.fold.pool


def test_of_the_other_topics_a_horizon_takes_what_was_folded_before_the_first_row_above_it() -> None:
    log = PartitionLog(settings_of(buffer={"ratio": 0.0}))
    owner = Owner(log)
    for records in ([fresh("a"), rollout("a"), rollout("a", 1)], [final("a")], [rollout("b")], [fresh("c")]):
        log.append(*records)
        owner.settle()
    horizon = Horizon(2)
    taken = [row for row in log.rows if horizon.taken(row) is not None]
    assert [type(row).__name__ for row in taken] == ["RolloutRow", "RolloutRow", "SeedRow", "FinalRow"]
    assert (horizon.below, horizon.reached) == (Cut(2, 1, 1), True)


def test_a_horizon_may_cut_final_events_by_an_offset_of_their_own() -> None:
    log = PartitionLog(settings_of(buffer={"ratio": 0.0}))
    owner = Owner(log)
    for records in ([rollout("a")], [final("a")], [rollout("b")], [final("b")], [rollout("c")], [final("c")]):
        log.append(*records)
        owner.settle()
    horizon = Horizon(1, group_events=2)
    taken = [said for row in log.rows if (said := horizon.taken(row)) is not None]
    assert [(type(row).__name__, row.offset) for row in taken] == [("RolloutRow", 0), ("FinalRow", 0), ("FinalRow", 1)]
    assert horizon.below == Cut(1, 0, 2)


def test_rows_that_were_deleted_are_missed_only_where_a_cut_needs_them() -> None:
    """The first shard row that needed none of them says from where on."""

    def state(rollouts: int, needed: int) -> StateRow:
        log = PartitionLog(settings_of())
        shard = Owner(log).shard
        for topic, at in zip(INPUT_TOPICS, (rollouts, 1, 1), strict=True):
            shard.passed(topic, at)
        shard.fold.places.begin(needed)
        return shard.fold.state_row("s")

    assert Coverage(0).covers(Cut(0, 0, 0))
    coverage = Coverage(7)
    for row in (state(3, 6), state(5, 7), state(9, 8)):
        coverage.learn(row)
    assert [coverage.covers(Cut(rollouts, 1, 1)) for rollouts in (4, 5, 6)] == [False, True, True]
    assert not coverage.covers(Cut(9, 0, 1))
