"""What a shard keeps: the newest candidates, within limits that depend on `rollouts` alone (design/buffer#eviction)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from rolloutlog.buffer.derivations.protocol import AnchorPoint
from rolloutlog.buffer.folding.fold import Fold
from rolloutlog.buffer.folding.row_restoring import RowRestoring
from rolloutlog.buffer.folding.tally import by_kind
from rolloutlog.buffer.group.group import Disposition
from rolloutlog.buffer.index.packed_anchors import pack
from rolloutlog.buffer.index.rollout_row import RolloutRow
from rolloutlog.buffer.index.rows import AnnotationRow, FinalRow, Row
from rolloutlog.contract.policies import Policy
from rolloutlog.contract.settings import BufferSettings, KeepSettings
from rolloutlog.contract.topics import Topic
from rolloutlog.contract.vocabulary import AnchorKind, Status

CONTINUE = {"name": "go-on", "derive": {"type": "continue", "anchor": "tool-call", "max_anchors": None}}


def fold_of(capacity: int, **keep: Any) -> Fold:
    given = {"capacity": capacity, "keep": keep, "derivations": [CONTINUE]}
    return Fold.empty(0, BufferSettings.model_validate(given))


def source(offset: int, version: int = 0, env: str = "a", reward: float | None = 1.0, anchors: int = 1) -> RolloutRow:
    """The row of a group's only record."""
    points = [AnchorPoint(AnchorKind.TOOL_CALL, node, 9) for node in range(anchors)]
    return RolloutRow(
        offset=offset, size=9, timestamp=1, group=f"{offset}", group_size=1, needed=1, member=0, attempt=1,
        status=Status.COMPLETED, sha256=b"Z" * 32, reward=reward, env=env, newest=Policy(0, version),
        packed=pack(points),
    )  # fmt: skip


def note(offset: int, of: int, reward: float | None) -> AnnotationRow:
    return AnnotationRow(offset, f"note-{offset}", f"{of}", 1, 0, 1, True, reward)


def kept(fold: Fold, *rows: Row) -> list[int]:
    for row in rows:
        fold.apply(row)
    return list(fold.pool.sources)


def test_the_newest_stay() -> None:
    assert kept(fold_of(2), *(source(at) for at in range(4))) == [2, 3]


def test_what_is_older_than_so_many_versions_leaves_when_a_newer_record_comes() -> None:
    fold = fold_of(9, max_age=2)
    assert kept(fold, source(0, 5), source(1, 3), source(2, 7)) == [0, 2]
    assert kept(fold, source(3, 1)) == [0, 2, 3], "an old one that comes late is judged by those after it"
    assert kept(fold, source(4, 8)) == [2, 4]


def test_an_environment_takes_its_part_of_the_capacity() -> None:
    fold = fold_of(4, env_share=0.5)
    assert kept(fold, source(0, env="b"), *(source(at) for at in range(1, 5))) == [0, 3, 4]
    assert kept(fold, source(5, env="b"), source(6, env="c")) == [3, 4, 5, 6]


def test_a_reward_out_of_the_band_takes_no_place_and_a_late_one_gives_it_back() -> None:
    fold = fold_of(9, max_reward=0.5)
    assert kept(fold, source(0), source(1, reward=0.5), source(2, reward=None)) == [1, 2]
    assert kept(fold, note(3, 2, 1.0), note(4, 1, 0.25)) == [1]
    assert fold.pool.sources[1].reward == 0.25


def test_a_reward_that_was_told_before_its_record_takes_no_place_away() -> None:
    """Its row may lie below all that a restore reads, so the record's own reward decides."""
    fold = fold_of(9, max_reward=0.5)
    assert kept(fold, note(0, 1, 1.0), source(1, reward=0.5)) == [1]
    assert fold.pool.sources[1].reward == 1.0


def test_what_was_not_kept_is_counted_by_reason() -> None:
    fold = fold_of(2, max_age=0, max_reward=0.5, env_share=0.5)
    rows = source(0, reward=0.9), source(1, reward=0.1), source(2, reward=0.1), source(3, 1, "b", 0.0)
    assert kept(fold, *rows, source(4, 1, "c", 0.0), source(5, 1, "d", 0.0)) == [4, 5]
    assert by_kind(fold.numbers())["evicted"] == {"reward": 1, "env-share": 1, "age": 1, "capacity": 1}


def test_a_band_that_nothing_lies_in_is_refused() -> None:
    with pytest.raises(ValidationError, match="above max_reward"):
        KeepSettings(min_reward=1.0, max_reward=0.0)


def test_a_shard_that_is_restored_counts_on() -> None:
    fold = fold_of(1)
    kept(fold, source(0), source(1))
    heir = fold_of(1)
    heir.apply(fold.state_row("s"))
    assert by_kind(heir.numbers())["evicted"] == {"capacity": 1}


REWARDS = st.sampled_from([None, 0.0, 1.0])
RECORDS = st.tuples(st.integers(0, 5), st.sampled_from("ab"), REWARDS, st.integers(1, 3))
KEEPS = st.fixed_dictionaries(
    {},
    optional={
        "max_age": st.integers(0, 3),
        "env_share": st.sampled_from([0.2, 0.5, 0.7]),
        "max_reward": st.just(0.5),
    },
)
LOGS = st.lists(st.one_of(RECORDS, RECORDS, st.tuples(st.integers(0, 30), REWARDS)), max_size=30)


def placed(log: list[tuple[Any, ...]]) -> list[RolloutRow | AnnotationRow]:
    """Rows of records, and of annotations of records before and after them."""
    return [source(at, *said) if len(said) == 4 else note(at, *said) for at, said in enumerate(log)]


@settings(max_examples=200)
@given(LOGS, KEEPS, st.integers(1, 7), st.randoms(use_true_random=False))
def test_what_is_kept_depends_on_rollouts_alone(
    log: list[Any], keep: dict[str, Any], capacity: int, random: Any
) -> None:
    """Whenever finals are folded, and whichever rewards are late (design/buffer#ended)."""
    plain, live = fold_of(capacity, **keep), fold_of(capacity, **keep)
    for number, row in enumerate(placed(log)):
        plain.apply(row)
        live.apply(row)
        live.apply(FinalRow(number, f"{number}", f"{random.randint(0, 30)}", random.randint(0, 31), None))
    assert [(at, nodes) for at, _, nodes in as_kept(live)] == [(at, nodes) for at, _, nodes in as_kept(plain)]


@settings(max_examples=400)
@given(LOGS, KEEPS, st.integers(1, 7), st.randoms(use_true_random=False))
def test_whoever_reads_no_row_below_needed_keeps_the_same_and_goes_on_alike(
    log: list[Any], keep: dict[str, Any], capacity: int, random: Any
) -> None:
    live, index, rows = fold_of(capacity, **keep), list[Row](), placed(log)
    cut = random.randint(0, len(rows))
    for number, row in enumerate(rows[:cut]):
        write(live, row, index)
        live.passed(Topic.ROLLOUTS, row.offset + 1)
        if isinstance(row, RolloutRow) and random.random() < 0.9:
            write(live, FinalRow(number, f"{number}", row.group, row.offset + 1, None), index)
    heir = restored(live, index, fold_of(capacity, **keep))
    assert as_kept(heir) == as_kept(live)
    for row in rows[cut:]:
        for fold in (live, heir):
            fold.apply(row)
            fold.passed(Topic.ROLLOUTS, row.offset + 1)
        assert as_kept(heir) == as_kept(live)


def write(fold: Fold, row: Row, index: list[Row]) -> None:
    """Fold a row, and put it on the index."""
    if fold.apply(row) is not Disposition.DUPLICATE:
        fold.placed(row, len(index))
        index.append(row)


def restored(live: Fold, index: list[Row], heir: Fold) -> Fold:
    """A shard that reads the rows which the newest shard row says are needed."""
    state = live.state_row("s")
    restoring = RowRestoring(heir)
    restoring.recall(state)
    for offset, row in enumerate(index):
        if offset >= state.reads:
            restoring.restore(row, offset)
    heir.apply(state)
    return heir


def as_kept(fold: Fold) -> list[tuple[int, float | None, list[int]]]:
    """Sources with their newest rewards, and the nodes of their candidates."""
    return [
        (offset, each.reward, [candidate.point.node for candidate in fold.pool.candidates(offset)])
        for offset, each in fold.pool.sources.items()
    ]
