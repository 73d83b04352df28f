"""Sources that are sound and yet odd: in a circle, of fifty megabytes, without a reward; and an index that is compacted
under a restore (design/buffer#bad-input)."""

from __future__ import annotations

import time
from typing import Any

import orjson
import pytest

from rolloutlog.buffer.shard.shard import Shard
from rolloutlog.contract.ids import rollout_id
from rolloutlog.contract.topics import Topic
from tests.buffer.events_by_hand import annotated, final, fresh, rollout, taken, tool_turns
from tests.buffer.partition_log import Owner, PartitionLog, group_id, recall, restored, settings_of

HUGE = 50_000_000
JUDGE = {"name": "judge", "derive": {"type": "judge", "max_transcript_chars": 5000}}
RECHECK = {"name": "recheck", "derive": {"type": "recheck"}}


def test_a_lineage_that_is_a_circle_ends_where_its_depth_does() -> None:
    """Each says that it was made of the other. Nobody follows what a record says of its source: `depth` counts, and
    `select.max_depth` ends it (decisions/replay#7)."""
    chained = {**RECHECK, "select": {"source_envs": ["sums/recheck"], "max_depth": 4}}
    log = PartitionLog(settings_of(buffer={"derivations": [chained]}))
    for name, other in ("ab", "ba"):
        said: dict[str, Any] = {
            "derivation": "recheck",
            "seed_kind": "recheck",
            "source_id": rollout_id(group_id(other), 0),
        }
        log.append(*(rollout(name, member, depth=depth, **said) for member, depth in ((0, 3), (1, 4))))
    log.append(rollout("c", 0), rollout("c", 1))  # that derived groups seed takes one that isn't
    Owner(log).settle()
    assert {seed.depth for seed in log.seeds} == {4}, "what has a depth of 4 seeds nothing more"
    assert not log.reasons


def test_a_transcript_of_fifty_megabytes_is_cut_and_what_holds_it_whole_is_void() -> None:
    """Of the judge a bounded transcript; a seed that no topic takes is told, of its own derivation alone
    (decisions/replay#78)."""
    log = PartitionLog(settings_of(buffer={"derivations": [JUDGE, RECHECK], "cache_bytes": 4 * HUGE}))
    log.append(
        *(rollout("a", member, nodes=tool_turns(1, text="x" * HUGE), reward=float(member)) for member in range(2))
    )
    begun = time.monotonic()
    Owner(log).settle()
    assert {seed.derivation for seed in log.seeds} == {"judge"}
    assert all(len(orjson.dumps(seed.messages)) < 10_000 for seed in log.seeds)
    letters = [orjson.loads(event.value or b"") for event in log.topics[Topic.DEAD_LETTERS]]
    assert {letter["derivation"] for letter in letters} == {"recheck"}
    assert "a topic of this run takes" in letters[0]["detail"]
    assert time.monotonic() - begun < 60


def test_without_a_reward_a_source_is_judged_by_nobody_until_it_comes() -> None:
    """Pending lies in no band but the open one, and on neither side of a balance (decisions/replay#13 and #82)."""
    banded = {**RECHECK, "select": {"min_source_reward": 0.5}}
    log = PartitionLog(settings_of(buffer={"derivations": [JUDGE, banded]}))
    log.append(rollout("a", 0, reward=None), rollout("a", 1, reward=0.0))
    owner = Owner(log)
    owner.settle()
    assert log.seeds == []
    log.append(annotated("a", 0, reward=1.0))
    owner.settle()
    assert {seed.derivation for seed in log.seeds} == {"judge", "recheck"}
    assert {seed.source.reward for seed in log.seeds if seed.source and seed.derivation == "recheck"} == {1.0}


@pytest.mark.parametrize("every", [1, 3])
def test_an_index_that_is_compacted_while_it_is_read_restores_the_same(every: int) -> None:
    """Up to some row as it was, from there on without what compaction takes: whichever row that is (design/buffer#ended
    and design/exactly-once#index)."""
    log = PartitionLog(settings_of())
    owner = Owner(log)
    for name in "abcd":
        log.append(fresh(name), taken(name), rollout(name, 0), rollout(name, 1, reward=None))
        owner.settle()
        log.append(annotated(name, 1, reward=0.5), final(name, as_of=len(log.topics[Topic.ROLLOUTS])))
        owner.settle()
    whole = log.rows
    newest = {row.key: at for at, row in enumerate(whole)}
    assert len(newest) < len(whole), "there is something to compact"
    for cut in range(0, len(whole) + 1, every):
        left = {at: row for at, row in enumerate(whole) if at < cut or newest[row.key] == at}
        shard = Shard.empty(log.partition, log.settings)
        recall(shard, left)
        assert shard.fold == restored(log) == owner.shard.fold
