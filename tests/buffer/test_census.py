"""One shard row tells how a shard stands, so that nobody reads a topic to know it."""

from __future__ import annotations

from rolloutlog.buffer.folding.tally import by_kind
from rolloutlog.buffer.index.rows import StateRow
from rolloutlog.contract.vocabulary import DropReason
from tests.buffer.events_by_hand import final, fresh, rollout
from tests.buffer.partition_log import Owner, PartitionLog, restored, settings_of


def told(log: PartitionLog) -> dict[str, int]:
    """What the newest shard row counts."""
    return next(row.census for row in reversed(log.rows) if isinstance(row, StateRow))


def a_run() -> PartitionLog:
    log = PartitionLog(settings_of(buffer={"ratio": 1.0}))
    for name in ("a", "b", "c", "d"):
        log.append(rollout(name, 0), rollout(name, 1))
    log.append(rollout("late", 0), fresh("asked"), final("a"), final("b", reason=DropReason.ZERO_VARIANCE))
    Owner(log).settle()
    return log


def test_groups_are_open_or_resolved_and_ended_ones_are_told_by_their_end() -> None:
    census = told(a_run())
    assert (census["resolved"], by_kind(census)["ended"]) == (2, {"trained": 1, "zero-variance": 1})
    assert census["open"] >= 2, "late and asked, and those of derived seeds"


def test_seeds_are_told_by_kind_and_what_seeds_nothing_by_reason() -> None:
    log = a_run()
    census = by_kind(told(log))
    assert census["seeds"] == {"fresh": 1, "continue": len(log.seeds) - 1}
    assert sum(census["skipped"].values()) > 0


def test_a_restored_shard_counts_on() -> None:
    log = a_run()
    assert restored(log).numbers() == told(log)
    owner = Owner(log)
    log.append(rollout("more", 0), rollout("more", 1))
    owner.settle()
    skipped = sum(by_kind(told(log))["skipped"].values())
    assert skipped == sum(by_kind(restored(log).numbers())["skipped"].values())
