"""A group that ended is forgotten but for its id, and a restore reads what is needed (design/buffer#ended)."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterable
from dataclasses import replace

import pytest

from rolloutlog.buffer.group.ended_ids import LEAST_FRESH, EndedIds
from rolloutlog.buffer.index.ended_chunks import CHUNK
from rolloutlog.buffer.index.rollout_row import RolloutRow
from rolloutlog.buffer.index.row_codec import row_event
from rolloutlog.buffer.index.rows import ChunkRow, EndedRow, SeedRow, StateRow
from rolloutlog.buffer.shard.shard import Shard
from rolloutlog.consumers.fold_rows import recall_chunk
from rolloutlog.contract.errors import IndexMismatch
from rolloutlog.contract.events.event import Event, Outgoing
from rolloutlog.contract.events.group_events import GroupFinal, final_event
from rolloutlog.contract.events.seeds import Seed, seed_event
from rolloutlog.contract.ids import ended_id
from rolloutlog.contract.topics import Topic
from rolloutlog.contract.vocabulary import RunKind, SeedKind, Status
from rolloutlog.contract.wire.headers import Headers
from tests.buffer.events_by_hand import annotated, cancelled, final, fresh, rollout, taken
from tests.buffer.partition_log import NOW, Owner, PartitionLog, group_id, needed_of, restored, settings_of

NO_DERIVING = {"buffer": {"ratio": 0.0}}


def log_of(*records: Outgoing, **changes: object) -> PartitionLog:
    log = PartitionLog(settings_of(**(changes or NO_DERIVING)))
    log.append(*records)
    return log


def trained(name: str, as_of: int = 2) -> list[Outgoing]:
    """A group that can be forgotten at once: none of its records can be a source."""
    members = [rollout(name, member, status=Status.FAILED) for member in range(2)]
    return [fresh(name), *members, final(name, as_of)]


def settled(log: PartitionLog) -> Owner:
    owner = Owner(log)
    owner.settle()
    return owner


class TestForgetting:
    def test_a_group_that_ended_leaves_its_id_and_a_row(self) -> None:
        log = log_of(*trained("a"))
        groups = settled(log).shard.fold.groups
        assert (groups.opened, [*groups.closed], len(groups.forgotten)) == ({}, [], 1)
        assert group_id("a") in groups.forgotten
        assert [row.group for row in log.rows if isinstance(row, EndedRow)] == [group_id("a")]

    def test_the_shard_row_that_forgets_it_needs_its_rows_no_more(self) -> None:
        log = log_of(*trained("a")[:-1], fresh("b"))
        owner = settled(log)
        log.append(final("a", 2))
        owner.settle()
        rows = {row.group: at for at, row in reversed([*enumerate(log.rows)]) if isinstance(row, SeedRow)}
        assert needed_of(log) == rows[group_id("b")]

    def test_whatever_comes_of_it_later_opens_nothing(self) -> None:
        log = log_of(*trained("a"))
        owner = settled(log)
        before = replace(owner.shard.fold.groups)
        late = [rollout("a", 0, 2), rollout("a"), annotated("a", reward=0.5), taken("a"), cancelled("a", [0, 1])]
        log.append(*late, fresh("a"), fresh("a", id="another"), final("a", 7))
        owner.settle()
        assert owner.shard.fold.groups == before
        assert {row.dead for row in log.rows if isinstance(row, RolloutRow) and row.offset >= 2} == {True}
        assert log.reasons == []
        assert restored(log) == owner.shard.fold

    @pytest.mark.parametrize(
        "without",
        [
            pytest.param([*trained("a", as_of=9)], id="rollouts isn't read to its end"),
            pytest.param(trained("a")[1:], id="its origin seed isn't folded"),
            pytest.param(trained("a")[:-1], id="no final event"),
        ],
    )
    def test_what_is_missing_is_waited_for(self, without: list[Outgoing]) -> None:
        log = log_of(*without)
        owner = settled(log)
        assert owner.shard.fold.groups.find(group_id("a")) is not None
        log.append(*(rollout("b", member) for member in range(9)), fresh("a"), final("a", 2))
        owner.settle()
        assert owner.shard.fold.groups.is_forgotten(group_id("a"))

    def test_a_group_of_which_a_record_can_be_drawn_is_kept(self) -> None:
        log = log_of(fresh("a"), rollout("a"), final("a", 1), buffer={"ratio": 0.0, "capacity": 1})
        owner = settled(log)
        assert group_id("a") in owner.shard.fold.groups.closed
        log.append(annotated("a", reward=0.25))
        owner.settle()
        assert [source.reward for source in owner.shard.fold.pool.sources.values()] == [0.25]
        log.append(rollout("b"))
        owner.settle()
        assert owner.shard.fold.groups.is_forgotten(group_id("a"))

    def test_an_imported_group_needs_no_seed(self) -> None:
        log = log_of(rollout("a", origin_seed=None, origin_offset=None, status=Status.FAILED), final("a", 1))
        assert settled(log).shard.fold.groups.is_forgotten(group_id("a"))

    def test_a_group_whose_origin_seed_was_deleted_is_forgotten_once_seeds_is_read_past_it(self) -> None:
        log = log_of(
            *(rollout("a", member, status=Status.FAILED, origin_offset=1) for member in range(2)), final("a", 2)
        )
        log.append(fresh("b"))
        owner = settled(log)
        assert not owner.shard.fold.groups.is_forgotten(group_id("a"))
        log.append(fresh("c"))
        owner.settle()
        assert owner.shard.fold.groups.is_forgotten(group_id("a"))
        assert restored(log) == owner.shard.fold

    def test_an_eval_group_ends_when_it_is_resolved(self) -> None:
        members = [rollout("a", member, kind=RunKind.EVAL) for member in range(2)]
        log = log_of(fresh("a", run_kind=RunKind.EVAL), *members)
        assert settled(log).shard.fold.groups.is_forgotten(group_id("a"))

    def test_an_eval_group_of_which_nobody_made_anything_ends_too(self) -> None:
        log = log_of(fresh("a", run_kind=RunKind.EVAL), cancelled("a", [0, 1]))
        assert settled(log).shard.fold.groups.is_forgotten(group_id("a"))


def many(count: int) -> Iterable[Outgoing]:
    """Seeds and finals of groups of which no record came."""
    for number in range(count):
        seed = Seed(
            id=f"s{number}", kind=SeedKind.FRESH, group=f"g{number}", group_size=1, env="sums", budget=1, task={}
        )
        yield seed_event(seed, source="/tests", now=NOW)
        ended = GroupFinal(group=seed.group, group_size=1, timeline=0, step=1, as_of=0)
        yield final_event(ended, source="/tests", now=NOW)


class TestChunks:
    def test_so_many_ids_make_a_chunk_and_the_shard_row_names_it(self) -> None:
        log = log_of(*many(2 * CHUNK + 3))
        owner = settled(log)
        chunks = [(at, row) for at, row in enumerate(log.rows) if isinstance(row, ChunkRow)]
        (first, one), (second, two) = chunks
        assert (one.number, one.before, two.number, two.before) == (0, None, 1, first)
        assert {*one.names, *two.names} < {ended_id(f"g{number}") for number in range(2 * CHUNK + 3)}
        state = log.rows[-1]
        assert isinstance(state, StateRow)
        assert state.chunk in (first, second)
        log.append(rollout("z"))
        owner.settle()
        state = log.rows[-1]
        assert isinstance(state, StateRow)
        assert state.chunk == second
        assert len(owner.shard.fold.places.chunks.partial) == 3
        needed = needed_of(log)
        heir = restored(log)
        assert heir == owner.shard.fold
        assert heir.places.chunks == owner.shard.fold.places.chunks
        assert len(log.rows) - needed < 2 * CHUNK, "a restore reads a part of the rows"

    def test_a_group_that_is_in_a_chunk_only_is_still_known(self) -> None:
        log = log_of(*many(CHUNK))
        settled(log)
        log.append(rollout("z"))
        settled(log)
        log.append(rollout("y"))
        settled(log)
        rows = log.rows
        gone = [row.group for row in rows[: needed_of(log)] if isinstance(row, EndedRow)]
        assert gone
        known = restored(log).groups.forgotten
        assert all(group in known for group in gone)


class TestMemory:
    def test_an_id_takes_below_64_bytes(self) -> None:
        count = 200 * (LEAST_FRESH // 10)
        tracemalloc.start()
        try:
            ids = EndedIds()
            for first in range(0, count, 100):
                ids.add([ended_id(str(number)) for number in range(first, first + 100)])
            kept, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert len(ids) == count
        assert kept < 64 * count

    def test_they_are_exact_whatever_bytes_they_end_in(self) -> None:
        ids, names = EndedIds(), [ended_id(str(number)) for number in range(3000)]
        zeros = [name for name in names if name.endswith(b"\0")]
        assert zeros
        ids.add(names[::2])
        ids.add(names[::2])
        assert ids == ids
        assert len(ids) == len(names[::2])
        assert [str(number) in ids for number in range(3000)] == [number % 2 == 0 for number in range(3000)]


def test_a_shard_that_forgot_too_much_at_once_goes_on_without_new_events() -> None:
    log = log_of(*many(CHUNK + 5))
    shard = Owner(log)
    for topic in (Topic.SEEDS, Topic.GROUP_EVENTS):
        shard.read(topic)
    assert shard.flush()
    assert len(shard.shard.fold.groups.forgotten) == CHUNK
    assert shard.flush()
    assert len(shard.shard.fold.groups.forgotten) == CHUNK + 5
    assert not shard.flush()


@pytest.mark.parametrize(("before", "count"), [(7, 2), (8, 2), (None, 2)])
def test_a_chunk_that_leads_nowhere_is_refused(before: int | None, count: int) -> None:
    """Who followed it would read for ever, or miss ids."""
    row = ChunkRow(1, before, ended_id("a"), count)
    made = row_event(row, partition=0, source="/buffer/0", now=0)
    event = Event(made.topic, 0, 7, 0, made.key, Headers(made.headers), made.value)
    with pytest.raises(IndexMismatch, match=r"rollout-index/0/7 .* chunk 1 of 2 doesn't lead to the others"):
        recall_chunk(Shard.empty(0, settings_of()), event)
