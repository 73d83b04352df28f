"""A shard that draws on an ended namespace's rollouts besides its own (design/buffer#source)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rolloutlog.buffer.folding.fold import Fold
from rolloutlog.buffer.index.rollout_row import RolloutRow
from rolloutlog.buffer.offline.redraw import Finding, Redraw
from rolloutlog.buffer.shard.rendering import Void
from rolloutlog.buffer.shard.shard import Shard
from rolloutlog.contract.events.event import Outgoing
from rolloutlog.contract.handles import Handle
from rolloutlog.contract.record.trajectory import Trajectory
from rolloutlog.contract.topics import Topic
from rolloutlog.contract.vocabulary import RunKind, Status
from tests.buffer.events_by_hand import annotated, final, forged, fresh, rollout, taken, tool_turns
from tests.buffer.partition_log import NOW, Owner, PartitionLog, group_id, needed_of, restored, settings_of
from tests.buffer.test_bad_inputs import body_of
from tests.buffer.test_plug_in import installed  # noqa: F401  # pyright: ignore[reportUnusedImport]  # a fixture
from tests.cases.bad_inputs import BAD_INPUTS, BadInput

OLD = "last-week"


class Sourced(Owner):
    """An owner of a partition whose run draws on `source`."""

    def __init__(self, log: PartitionLog, source: PartitionLog) -> None:
        super().__init__(log)
        self.source = source
        log.payload = self.payload  # handles of either log
        if not log.rows:
            self.shard.source_passed(0 if source.topics[Topic.ROLLOUTS] else None)

    def payload(self, handle: Handle) -> Trajectory | Void:
        """What lies at a handle of either log."""
        of = self.source if handle.namespace else self.log
        return PartitionLog.payload(of, handle)

    def read_source(self, count: int = 1 << 30) -> None:
        """Fold the next events of the source."""
        events = self.source.topics[Topic.ROLLOUTS]
        start = self.shard.fold.source_next
        if start is None:
            return
        for event in events[start:][:count]:
            self.shard.read_source(event, OLD, now=NOW)
        self.shard.source_passed(start + count if start + count < len(events) else None)

    def settle(self) -> None:
        """Read the source, then all else."""
        self.read_source()
        super().settle()


def logs(*said: Outgoing, **changes: Any) -> tuple[PartitionLog, PartitionLog]:
    """A log to draw from, and an empty one of a run with other settings."""
    old = PartitionLog(settings_of())
    old.append(*said)
    return old, PartitionLog(settings_of(**changes))


def group(name: str, **facts: Any) -> list[Outgoing]:
    return [fresh(name), rollout(name, 0, **facts), rollout(name, 1, **facts)]


def places(fold: Fold) -> list[int]:
    return [candidate.offset for candidate in fold.pool.live]


def test_what_ended_there_is_a_source_here_and_its_seeds_name_the_namespace() -> None:
    old, new = logs(*group("a"), final("a"), *group("b"), buffer={"ratio": 1.0})
    owner = Sourced(new, old)
    owner.settle()
    assert len(new.seeds) == 2, "a share of the two groups there, which ended"
    for seed in new.seeds:
        assert seed.source
        assert seed.source.where.namespace == OLD
        assert seed.source.handle.startswith(f"{OLD}:0/")
        event = old.topics[Topic.ROLLOUTS][seed.source.where.offset]
        assert seed.source.digest == event.headers.digest
    assert not owner.shard.fold.groups.closed
    assert owner.shard.fold.groups.resolved == 2
    assert new.reasons == []
    assert restored(new) == owner.shard.fold


def test_nothing_is_drawn_and_nothing_asked_for_again_before_all_of_it_is_folded() -> None:
    old, new = logs(*group("a"), fresh("b"), taken("b"), rollout("b", 0, status=Status.ABORTED), *group("c"))
    owner = Sourced(new, old)
    for _ in range(len(old.topics[Topic.ROLLOUTS]) - 1):
        owner.read_source(1)
        owner.flush()
        assert not new.seeds
    owner.read_source(1)
    owner.flush()
    assert new.seeds
    assert all(seed.draw for seed in new.seeds), "nobody is asked to make what was left open there"


@given(st.data())
def test_a_restart_anywhere_in_it_goes_on_and_gives_the_same(data: st.DataObject) -> None:
    said = [
        *group("a"), annotated("e", 0, reward=0.25), *group("b"), rollout("a", 0), annotated("a", 1, reward=0.5),
        rollout("b", 0, attempt=2, turns=1), rollout("b", 0, attempt=1), forged(rollout("c", 0)), *group("e"),
        *group("f", kind=RunKind.EVAL), rollout("d", 1, attempt=2), rollout("d", 1, attempt=1),
        *group("a", group_size=3),
    ]  # fmt: skip
    capacity = data.draw(st.sampled_from([3, 16]))
    old, whole = logs(*said, buffer={"ratio": 1.0, "capacity": capacity})
    owner = Sourced(whole, old)
    owner.settle()
    log = PartitionLog(whole.settings)
    broken = Sourced(log, old)
    while broken.shard.fold.source_next is not None:
        broken.read_source(data.draw(st.integers(1, 5)))
        broken.flush()
        if data.draw(st.booleans()):
            live, broken = broken.shard.fold, Sourced(log, old)
            assert broken.shard.fold == live
            assert broken.shard.fold.needed == live.needed
    broken.settle()
    assert broken.shard.fold.pool == owner.shard.fold.pool
    assert [seed.encode() for seed in log.seeds] == [seed.encode() for seed in whole.seeds]
    assert restored(log) == broken.shard.fold
    log.append(*group("a"), rollout("b", 0, attempt=3), annotated("a", 0, reward=0.0))
    broken.settle()
    assert restored(log) == broken.shard.fold
    assert restored(log).needed == broken.shard.fold.needed
    check = Redraw.of(0, log.settings)
    found = [*check.read(log.rows), *check.end()]
    assert {each.finding for each in found} == ({Finding.EQUAL} if log.seeds else set())


def test_groups_of_the_same_name_are_others() -> None:
    """The same recorded run may be imported here too: what is said of it says nothing of the source."""
    old, new = logs(*group("a"), buffer={"ratio": 0.0})
    owner = Sourced(new, old)
    owner.settle()
    there = places(owner.shard.fold)
    new.append(*group("a"), rollout("a", 0, attempt=2, turns=1), annotated("a", 1, reward=0.0), final("a"))
    owner.settle()
    assert places(owner.shard.fold)[: len(there)] == there
    assert [source.reward for source in owner.shard.fold.pool.sources.values() if source.offset < 0] == [1.0, 1.0]
    assert restored(new) == owner.shard.fold


def test_what_ended_there_needs_no_rows_here_but_those_of_its_sources() -> None:
    old, new = logs(*(each for name in "abcdefgh" for each in group(name)), buffer={"ratio": 0.0, "capacity": 2})
    owner = Sourced(new, old)
    for _ in range(4):
        owner.read_source(4)
        owner.flush()
    owner.shard.is_dirty = True
    owner.flush()
    rows = [row for row in new.rows[needed_of(new) :] if isinstance(row, RolloutRow)]
    assert len(rows) <= 2
    assert restored(new) == owner.shard.fold
    assert restored(new).needed == owner.shard.fold.needed


def test_what_doesnt_stand_there_is_no_source_here() -> None:
    old, new = logs(rollout("a", 0), rollout("a", 0, attempt=2, turns=1), rollout("b", 0, kind=RunKind.EVAL))
    owner = Sourced(new, old)
    owner.settle()
    assert {source.row.attempt for source, _ in owner.shard.fold.pool if not source.dead} == {2}
    assert all(source.group == group_id("a") for source in owner.shard.fold.pool.sources.values())


def test_a_derivation_that_fails_on_it_is_told_here_and_a_bad_record_there() -> None:
    broken = [replace(node, message={"role": "assistant", "tool_calls": 5}) for node in tool_turns(1)]
    old, new = logs(forged(rollout("a", 0)), rollout("b", 0, nodes=broken))
    new.append(rollout("b", 0, nodes=broken), rollout("c", 0, nodes=broken))
    Sourced(new, old).settle()
    letters = [orjson.loads(event.value or b"") for event in new.topics[Topic.DEAD_LETTERS]]
    assert {letter["reason"] for letter in letters} == {"derivation"}
    assert [letter.get("namespace") for letter in letters] == [OLD, None, None]
    assert letters[0]["offset"] == 1
    ids = [event.headers.id for event in new.topics[Topic.DEAD_LETTERS]]
    assert len(set(ids)) == len(ids), "a record at the same offset of the run's own log is another"


def test_a_source_that_is_gone_is_passed_over() -> None:
    old, new = logs(*group("a"), *group("b"), buffer={"cache_bytes": 0})
    old.gone = {at for at, event in enumerate(old.topics[Topic.ROLLOUTS]) if event.headers.group == group_id("a")}
    owner = Sourced(new, old)
    owner.settle()
    assert new.seeds
    assert {seed.source and seed.source.rollout.split(".")[0] for seed in new.seeds} == {group_id("b")}
    assert sum(owner.shard.fold.census.skipped.values()) > 0


def test_the_same_rollout_in_both_logs_gives_two_seeds() -> None:
    old, new = logs(*group("a"), buffer={"ratio": 4.0})
    new.append(*group("a"))
    Sourced(new, old).settle()
    assert len({seed.id for seed in new.seeds}) == len(new.seeds)
    assert {seed.source.where.namespace for seed in new.seeds if seed.source} == {"", OLD}


@pytest.mark.parametrize("text", ["last week:0/1/2", ":0/1/2", "a:b:0/1", f"a:0/{1 << 62}/1", "a:0"])
def test_a_handle_that_names_no_namespace_is_none(text: str) -> None:
    with pytest.raises(ValueError, match=r"namespace|handle|natural|offset"):
        Handle.parse(text)


def test_a_shard_of_a_run_without_a_source_is_as_before() -> None:
    _, new = logs()
    new.append(*group("a"))
    owner = Owner(new)
    owner.settle()
    assert owner.shard.fold.source_next is None
    assert restored(new) == owner.shard.fold


@pytest.mark.usefixtures("installed")
def test_a_derivation_that_was_written_since_looks_for_its_own_anchors_there() -> None:
    again = [{"name": "again", "derive": {"type": "retry"}}]
    old, new = logs(*group("a"), *group("b", record={"task": {"breaks": True}}), buffer={"derivations": again})
    Sourced(new, old).settle()
    assert {seed.kind for seed in new.seeds} == {"retry"}
    assert {seed.source.rollout.split(".")[0] for seed in new.seeds if seed.source} == {group_id("a")}
    assert new.reasons == ["derivation"] * 2, "of the records on which it fails"


@pytest.mark.parametrize("row", BAD_INPUTS, ids=lambda row: row.name)
def test_a_bad_record_there_is_no_source_here_and_told_by_nobody(row: BadInput) -> None:
    """Its own run told it (design/record#validation)."""
    settings = settings_of(topics={"partitions": 6})
    shards = {partition: Shard.empty(partition, settings) for partition in range(6)}
    bad = set[int]()
    for offset, written in enumerate(row.records()):
        event = written.raw.event(6, offset)
        bad |= {offset} if written.reason is not None and row.found_in != "policies" else set()
        shards[event.partition].read_source(event, OLD, body_of(row, event), now=NOW)
    for shard in shards.values():
        shard.source_passed(None)
        assert [
            letter for letter in shard.outbox.dead_letters if dict(letter.headers)["ce_reason"] != b"derivation"
        ] == []
        alive = {source.row.handle(0).offset for source in shard.fold.pool.sources.values() if not source.dead}
        assert not alive & bad
