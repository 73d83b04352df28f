"""Which seeds nobody has taken, as the shard says it for workers without offsets (design/groups#wanted)."""

from __future__ import annotations

import pytest

from rolloutlog.buffer.index.rows import WantedRow
from rolloutlog.buffer.shard import wanted
from rolloutlog.buffer.shard.wanted import wanted_of
from rolloutlog.contract.events.seeds import Ask, seed_cancelled_event
from rolloutlog.contract.topics import Topic
from rolloutlog.contract.vocabulary import SeedKind
from tests.buffer.events_by_hand import final, fresh, rollout, seed_id, taken
from tests.buffer.partition_log import NOW, Owner, PartitionLog, group_id, restored, settings_of

SETTINGS = settings_of(buffer={"ratio": 0.0})


def owner_of(log: PartitionLog) -> Owner:
    owner = Owner(log)
    owner.settle()
    return owner


def wanted_rows(log: PartitionLog) -> list[WantedRow]:
    return [row for row in log.rows if isinstance(row, WantedRow)]


def test_seeds_that_nobody_has_taken_and_of_which_a_member_is_open() -> None:
    log = PartitionLog(SETTINGS)
    log.append(*map(fresh, ["taken", "ended", "made", "cancelled", "one", "two"]), taken("taken"), final("ended"))
    log.append(rollout("made"), rollout("made", 1))  # by somebody who took nothing
    log.append(
        seed_cancelled_event(
            seed=seed_id("cancelled"), group=group_id("cancelled"), group_size=2, reason="x", source="/t", now=NOW
        )
    )
    owner = owner_of(log)
    assert wanted_rows(log) == [WantedRow([4, 5], 7)]
    assert wanted_of(restored(log)) == wanted_of(owner.shard.fold)


def test_a_seed_that_asks_again_is_wanted_until_it_is_taken() -> None:
    again = fresh("a", id="again", kind=SeedKind.REROLL, asks=[Ask(member=1, attempt=2)], origin_seed=seed_id("a"))
    log = PartitionLog(SETTINGS)
    log.append(fresh("a"), taken("a"), rollout("a"), again)
    owner = owner_of(log)
    assert wanted_rows(log)[-1] == WantedRow([1], 2)
    log.append(taken("a", seed="again"))
    owner.clock = 20.0
    owner.settle()
    assert wanted_rows(log)[-1] == WantedRow([], 2)


def test_the_row_is_written_at_most_every_ten_seconds_when_it_changed() -> None:
    log = PartitionLog(SETTINGS)
    log.append(fresh("a"))
    owner = owner_of(log)
    assert [row.seeds for row in wanted_rows(log)] == [[0]]
    for clock, name in ((1.0, "b"), (9.9, "c")):
        owner.clock = clock
        log.append(fresh(name))
        owner.settle()
    assert len(wanted_rows(log)) == 1
    owner.clock = 10.0
    owner.settle()
    assert [row.seeds for row in wanted_rows(log)] == [[0], [0, 1, 2]]
    assert [event.headers.type for event in log.topics[Topic.ROLLOUT_INDEX]][-2:] == ["seeds.wanted", "shard.state"]
    owner.clock = 30.0
    owner.settle()
    assert len(wanted_rows(log)) == 2
    heir = Owner(log, clock=100.0)
    heir.settle()
    assert len(wanted_rows(log)) == 2, "a new owner knows what was said"


def test_behind_the_most_that_a_row_lists_one_reads_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wanted, "MOST", 3)
    log = PartitionLog(SETTINGS)
    log.append(*map(fresh, "abcdefg"), taken("b"))
    owner_of(log)
    assert wanted_rows(log) == [WantedRow([0, 2, 3], 4)]
