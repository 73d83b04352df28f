"""An old group that still counts, and a chunk that retention would delete, are told again (design/buffer#carried)."""

from __future__ import annotations

import pytest

from rolloutlog.buffer.folding import row_places
from rolloutlog.buffer.folding.fold import Fold
from rolloutlog.buffer.group.open_group import OpenGroup
from rolloutlog.buffer.index.ended_chunks import EndedChunks
from rolloutlog.buffer.index.rows import CarriedRow, ChunkRow, Row, SeedRow, StateRow
from rolloutlog.buffer.offline.cut import Coverage, Cut
from rolloutlog.buffer.offline.past_fold import PastFold
from rolloutlog.buffer.shard.shard import Shard
from rolloutlog.contract.events.event import Outgoing
from rolloutlog.contract.events.seeds import Anchor, Draw, Source
from rolloutlog.contract.ids import ID_BYTES
from rolloutlog.contract.topics import Topic
from rolloutlog.contract.vocabulary import AnchorKind, SeedKind, Status
from tests.buffer.events_by_hand import annotated, cancelled, final, fresh, rollout, taken
from tests.buffer.partition_log import (
    Owner,
    PartitionLog,
    compacted,
    group_id,
    needed_of,
    recall,
    restored,
    settings_of,
)

FAR = 20


def flow(log: PartitionLog, count: int) -> Owner:
    """So many groups come and are trained, none of which can be a source."""
    owner = Owner(log)
    owner.shard.fold.places.far = FAR
    for number in range(count):
        name = f"n{number}"
        log.append(fresh(name), *(rollout(name, member, status=Status.FAILED) for member in range(2)))
        log.append(final(name, len(log.topics[Topic.ROLLOUTS])))
        owner.settle()
    return owner


@pytest.fixture
def old() -> PartitionLog:
    """A group that has a seed, a take, a late reward told before its record, an aborted and no second member; then
    many others."""
    log = PartitionLog(settings_of(buffer={"ratio": 0.0, "capacity": 1}))
    log.append(
        fresh("a"), fresh("b"), taken("a"), annotated("a", reward=0.25), rollout("a", 0, turns=0), rollout("b", turns=0)
    )
    log.append(rollout("a", 1, status=Status.ABORTED), final("b", 4))
    flow(log, 40)
    return log


def carried_rows(log: PartitionLog) -> list[CarriedRow]:
    return [row for row in log.rows if isinstance(row, CarriedRow)]


def test_a_group_that_never_resolves_holds_few_rows(old: PartitionLog) -> None:
    assert {row.group for row in carried_rows(old)} == {group_id("a")}
    assert len(old.rows) - needed_of(old) < 3 * FAR


def test_a_shard_that_is_restored_from_what_was_carried_is_the_live_one_and_goes_on_alike(old: PartitionLog) -> None:
    live, heir = flow(old, 0), restored(old)
    assert heir == live.shard.fold
    opened = heir.groups.opened[group_id("a")]
    assert isinstance(opened, OpenGroup)
    assert (opened.group.members[0].reward, opened.seed is not None, len(opened.takes)) == (0.25, True, 1)
    old.append(rollout("a", 1, 2), final("a", len(old.topics[Topic.ROLLOUTS]) + 1))
    live.settle()
    assert live.shard.fold.groups.is_forgotten(group_id("a")) is False, "its newest record is a source"
    assert restored(old) == live.shard.fold


def test_a_refusal_that_was_carried_holds_for_a_source_that_comes_later() -> None:
    """A cancellation far back, the seed that it refused, and the record that it drew: its row alone is read again."""
    log = PartitionLog(settings_of(buffer={"ratio": 0.0, "capacity": 4}))
    log.append(cancelled("a", [0, 1], "refused"))
    owner = flow(log, 0)
    owner.shard.fold.places.far = 1 << 20
    for number in range(FAR):
        log.append(fresh(f"n{number}"))
    owner.settle()
    owner.shard.fold.places.far = FAR // 2
    at = len(log.topics[Topic.ROLLOUTS])
    log.append(drawn("a", at), final("a", at))
    owner.settle()
    assert group_id("a") in {row.group for row in carried_rows(log)}
    log.append(rollout("b", turns=1))
    owner.settle()
    heir = restored(log)
    assert [one.offset for one in owner.shard.fold.pool.live] == [one.offset for one in heir.pool.live]
    assert heir == owner.shard.fold
    assert [one.refused for one in heir.pool.candidates(at)].count(True) == 1


@pytest.mark.parametrize("number", [0, 1])
@pytest.mark.parametrize("is_refused_first", [False, True])
def test_of_two_origin_seeds_the_first_one_is_refused_though_a_restore_reads_the_other_alone(
    number: int, is_refused_first: bool
) -> None:
    """The first row of the group lies below the rows that are needed once it is forgotten; those after it don't."""
    log = PartitionLog(settings_of(buffer={"ratio": 0.0, "capacity": 4}))
    owner, refusal, other = Owner(log), cancelled("a", [0, 1], "refused"), drawn("a", 1, number=number, id="other")
    said = [[drawn("a", 0)], [rollout("x", status=Status.FAILED), rollout("b", turns=1)], [other], [refusal]]
    if is_refused_first:
        said[2:] = said[:1:-1]
    for records in [*said, [final("a", 3)]]:
        log.append(*records)
        owner.settle()
        assert restored(log) == owner.shard.fold
    fold = owner.shard.fold
    assert fold.groups.is_forgotten(group_id("a"))
    assert next(row for row in log.rows[needed_of(log) :] if isinstance(row, SeedRow)).seed.id == "other"
    assert not any(one.refused for one in fold.pool.candidates(1))


def drawn(name: str, offset: int, *, number: int = 0, **facts: str) -> Outgoing:
    """A seed that drew the first candidate of the record at that offset."""
    derivation = "continue-tool-call"
    return fresh(
        name,
        **facts,
        kind=SeedKind.CONTINUE,
        derivation=derivation,
        source=Source(rollout="r", attempt=1, handle=f"0/{offset}/1"),
        anchor=Anchor(kind=AnchorKind.TOOL_CALL, node=3),
        draw=Draw(number=number, rollouts=1, seeds=1, group_events=1, settings="s"),
    )


def test_a_look_back_passes_over_what_was_carried(old: PartitionLog) -> None:
    folds: list[Fold] = []
    for rows in (old.rows, [row for row in old.rows if not isinstance(row, CarriedRow)]):
        past = PastFold.empty(0, old.settings.buffer)
        for row in rows:
            past.offer(row)
        past.advance(past.seen)
        folds.append(past.fold)
    assert folds[0] == folds[1]


def test_where_rows_of_a_carried_group_were_deleted_no_cut_is_covered_until_it_is_forgotten(old: PartitionLog) -> None:
    owner, first = flow(old, 0), needed_of(old)
    assert not covered(old.rows, first)
    old.append(rollout("a", 1, 2, status=Status.FAILED), final("a", len(old.topics[Topic.ROLLOUTS]) + 1))
    owner.settle()
    assert covered(old.rows, first)


def covered(rows: list[Row], first: int) -> bool:
    """Whether the newest cut is covered where rows below `first` were deleted."""
    coverage = Coverage(first)
    for row in compacted(rows[first:]):
        coverage.learn(row)
    newest = next(row for row in reversed(rows) if isinstance(row, StateRow))
    return coverage.covers(Cut.of(newest))


def test_a_group_with_a_source_is_not_carried_and_neither_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    log = PartitionLog(settings_of(buffer={"ratio": 0.0, "capacity": 2}))
    log.append(fresh("a"), rollout("a"))
    flow(log, 20)
    assert carried_rows(log) == []
    monkeypatch.setattr(row_places, "FEW", 3)
    log = PartitionLog(settings_of(buffer={"ratio": 0.0}))
    log.append(*(fresh(name) for name in "abcd"))
    flow(log, 20)
    assert carried_rows(log) == [], "a restore reads what is open"


DAY = 86_400_000


def chunk(number: int, before: int | None, at: int) -> ChunkRow:
    return ChunkRow(number, before, bytes([number]) * ID_BYTES, number + 1, at)


class TestChunks:
    def test_one_is_written_again_unchanged_before_retention_passes_it(self) -> None:
        chunks = EndedChunks()
        for number in range(3):
            chunks.placed(chunk(number, number - 1 if number else None, number * DAY), 10 * number)
        assert chunks.due(0, 4 * DAY, retention_ms=-1) is None
        assert chunks.due(0, 4 * DAY, retention_ms=9 * DAY) is None
        again = chunks.due(0, 4 * DAY, retention_ms=8 * DAY)
        assert again == ChunkRow(0, 20, bytes(ID_BYTES), 3, 4 * DAY)
        assert again is not None
        assert again.key == chunk(0, None, 0).key
        assert chunks.due(0, 4 * DAY, retention_ms=8 * DAY) is None, "one is on its way"
        chunks.placed(again, 30)
        assert [*chunks.known] == [1, 2, 0]

    def test_whoever_reads_them_from_the_newest_needs_none_that_was_written_again(self) -> None:
        on_index = {30: ChunkRow(0, 20, bytes(ID_BYTES), 3, 4 * DAY), 20: chunk(2, 10, 2), 10: chunk(1, 0, 1)}
        chunks, at = EndedChunks(), 30
        while at is not None:
            at = chunks.recall(on_index[at], at)
        assert (chunks.newest, sorted(chunks.known), [*chunks.known][-1]) == (30, [0, 1, 2], 0)

    def test_a_shard_keeps_what_ended_through_retention(self) -> None:
        log = PartitionLog(settings_of(topics={"partitions": 1, "retention_ms": 0}, buffer={"ratio": 0.0}))
        owner = flow(log, 30)
        chunks = [(at, row) for at, row in enumerate(log.rows) if isinstance(row, ChunkRow)]
        assert len(chunks) > len({row.number for _, row in chunks}) > 1
        needed = min(needed_of(log), *(at for at, row in chunks if newest_of(chunks)[row.number] == at))
        left = {at: row for at, row in enumerate(log.rows) if at >= needed}
        assert needed > chunks[0][0], "the first chunk lies below all that is left"
        heir = Shard.empty(0, log.settings)
        recall(heir, left)
        assert heir.fold == owner.shard.fold


def newest_of(chunks: list[tuple[int, ChunkRow]]) -> dict[int, int]:
    return {row.number: at for at, row in chunks}


def test_ids_that_fill_no_chunk_hold_few_rows_too() -> None:
    log = PartitionLog(settings_of(buffer={"ratio": 0.0}))
    owner = flow(log, 30)
    assert any(isinstance(row, ChunkRow) for row in log.rows)
    assert len(log.rows) - needed_of(log) < 3 * FAR
    assert restored(log) == owner.shard.fold
