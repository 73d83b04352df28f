"""Which rollouts may be sources (design/buffer#selection)."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from rolloutlog.buffer.index.rollout_row import RolloutRow
from rolloutlog.buffer.index.row_codec import decode, encode
from rolloutlog.buffer.index.rows import Row
from rolloutlog.buffer.index.skip import Skip
from rolloutlog.buffer.shard.indexing import row_of
from rolloutlog.buffer.sources.screening import Screening
from rolloutlog.buffer.sources.selection import anchors_for, in_band
from rolloutlog.contract.record.node import Node
from rolloutlog.contract.settings import BufferSettings, DerivationSettings, Selection
from rolloutlog.contract.vocabulary import AnchorKind, RunKind, Status
from tests.buffer.events_by_hand import rollout, tool_turns
from tests.buffer.partition_log import Owner, PartitionLog, settings_of
from tests.buffer.recorded import say


def row(**facts: Any) -> RolloutRow:
    """The row of one record."""
    log = PartitionLog(settings_of())
    log.append(rollout("a", **facts))
    found: Row = decode(encode(row_of(next(iter(log.topics.values()))[0], 1).row))
    assert isinstance(found, RolloutRow)
    return found


def settings(anchor: AnchorKind = AnchorKind.TOOL_CALL, **select: Any) -> DerivationSettings:
    derive = {"type": "continue", "anchor": anchor}
    return DerivationSettings.model_validate({"name": "again", "derive": derive, "select": select})


UNSAMPLED = tool_turns(1)
for node in UNSAMPLED:
    node.sampled = False


@pytest.mark.parametrize(
    ("facts", "skip"),
    [
        ({"kind": "eval"}, Skip.EVAL),
        ({"nodes": []}, Skip.EMPTY),
        ({"record": {"errors": [{"type": "SandboxError"}]}}, Skip.ERRORED),
        ({"status": Status.ABORTED}, Skip.UNFINISHED),
        ({"status": Status.FAILED}, Skip.UNFINISHED),
        ({"nodes": UNSAMPLED}, Skip.UNSAMPLED),
        ({"nodes": [Node(), Node(parent=0, sampled=True)]}, Skip.NO_MESSAGES),
        ({"turns": 0}, Skip.NO_SEED),
    ],
)
def test_what_can_never_be_a_source(facts: dict[str, Any], skip: Skip) -> None:
    """decisions/replay#21 and #22: errored records seed nothing."""
    assert anchors_for(row(**facts), settings()) is skip


@pytest.mark.parametrize(
    ("record", "origin", "expected"),
    [
        ({}, None, None),
        ({"replay_task": {}, "source_reward": 1.0}, None, None),
        ({"source_reward": 1.0}, None, Skip.REPLAYED),
        ({}, "5eed" * 8, Skip.REPLAYED),
    ],
)
def test_a_replay_environment_of_another_tool_is_named_as_it_was_recorded(
    record: dict[str, Any], origin: str | None, expected: Skip | None
) -> None:
    """What was derived here has its innermost environment's name, also on another log (decisions/replay#7)."""
    derived = row(derivation="recheck", depth=1, record=record, origin_seed=origin, origin_offset=origin and 0)
    found = anchors_for(derived, settings(source_envs=["sums"]))
    assert found is expected if expected else isinstance(found, list)
    assert isinstance(anchors_for(derived, settings(source_envs=["sums/recheck"])), list)
    assert anchors_for(derived, settings()) is Skip.REPLAYED


@pytest.mark.parametrize("facts", [{}, {"status": Status.ABORTED}, {"record": {"errors": [{}]}}])
def test_evals_are_sources_where_they_are_asked_for(facts: dict[str, Any]) -> None:
    """And as any other where they are fit."""
    found = anchors_for(row(kind="eval", **facts), settings(eval=True))
    assert found == anchors_for(row(**facts), settings())
    assert isinstance(found, list) is not bool(facts)


@pytest.mark.parametrize(
    ("depth", "max_depth", "fits"), [(1, None, True), (2, None, False), (2, 3, True), (1, 1, False)]
)
def test_a_chain_ends(depth: int, max_depth: int | None, fits: bool) -> None:
    """By default at a derivation of what was derived (decisions/replay#7)."""
    select: dict[str, Any] = {"source_envs": ["sums/continue"]} | (
        {} if max_depth is None else {"max_depth": max_depth}
    )
    found = anchors_for(row(derivation="continue", depth=depth), settings(**select))
    assert isinstance(found, list) if fits else found is Skip.TOO_DEEP
    assert isinstance(anchors_for(row(), settings(max_depth=1)), list), "what nothing lies behind"


@pytest.mark.parametrize("task", [{"image": "x"}, {"type": "T", "data": {"image": "x"}}])
def test_container_tasks_only_if_allowed(task: dict[str, Any]) -> None:
    """In both forms of a task (decisions/replay#8)."""
    contained = row(record={"task": task})
    assert anchors_for(contained, settings()) is Skip.CONTAINER
    assert [point.node for point in _points(contained, settings(allow_container=True))] == [3, 5]


@pytest.mark.parametrize(
    ("envs", "derivation", "expected"),
    [
        (None, None, None),
        (None, "continue", Skip.REPLAYED),
        (["sums"], None, None),
        (["other"], None, Skip.FOREIGN),
        (["sums"], "continue", Skip.REPLAYED),
        (["sums/continue"], "continue", None),
        (["sums/continue"], None, Skip.FOREIGN),
        (["other/continue"], "continue", Skip.FOREIGN),
    ],
)
def test_source_envs_name_an_environment_or_one_of_its_derivations(
    envs: list[str] | None, derivation: str | None, expected: Skip | None
) -> None:
    """Unset means all but what is itself derived; a list means exactly these (decisions/replay#7)."""
    found = anchors_for(row(derivation=derivation), settings(source_envs=envs))
    assert found is expected if expected else isinstance(found, list)


def test_overlong_contexts_are_skipped_by_anchor() -> None:
    """An early anchor may fit where a late one doesn't (decisions/replay#14)."""
    first, second = (anchor for anchor in row().anchors if anchor.kind == AnchorKind.TOOL_CALL)
    assert _points(row(), settings(max_seed_tokens=first.tokens)) == [first]
    assert _points(row(), settings(max_seed_tokens=second.tokens)) == [first, second]
    assert anchors_for(row(), settings(max_seed_tokens=first.tokens - 1)) is Skip.OVERLONG


def test_each_derivation_sees_its_own_kind_of_anchor() -> None:
    nodes = [*tool_turns(1), say("user", "summary", 0), say("assistant", "on", 5)]
    both = row(nodes=nodes)
    assert [point.kind for point in both.anchors] == [AnchorKind.COMPACTION, AnchorKind.TOOL_CALL, "recheck", "judge"]
    assert [point.node for point in _points(both, settings(AnchorKind.COMPACTION))] == [5]
    assert [point.node for point in _points(both, settings(AnchorKind.TOOL_CALL))] == [3]


@pytest.mark.parametrize(
    ("reward", "low", "high", "fits"),
    [
        (0.5, None, None, True),
        (None, None, None, True),
        (0.5, 0.5, 0.5, True),
        (0.4, 0.5, None, False),
        (0.6, None, 0.5, False),
        (None, 0.0, None, False),
        (None, None, 1.0, False),
    ],
)
def test_the_reward_band_is_inclusive_and_a_pending_reward_is_in_none(
    reward: float | None, low: float | None, high: float | None, fits: bool
) -> None:
    """The band is inclusive (decisions/replay#13)."""
    assert in_band(reward, Selection(min_source_reward=low, max_source_reward=high)) is fits


def _points(found: RolloutRow, chosen: DerivationSettings) -> list[Any]:
    points = anchors_for(found, chosen)
    assert isinstance(points, list)
    return points


def of(derive: dict[str, Any], **facts: Any) -> DerivationSettings:
    return DerivationSettings.model_validate({"name": "again", "derive": derive, **facts})


def test_a_judge_reads_what_was_said_and_needs_no_container() -> None:
    """decisions/replay#8 and #75."""
    contained = row(record={"task": {"image": "x"}})
    assert isinstance(anchors_for(contained, of({"type": "judge"})), list)
    assert anchors_for(contained, of({"type": "recheck"})) is Skip.CONTAINER


def test_a_seed_that_leaves_no_token_of_a_sequence_is_overlong() -> None:
    """Of `seq_len`, a seed's tokens are those of the whole prompt, the turn that asks included
    (decisions/replay#19)."""
    told, recheck = row(), of({"type": "recheck", "instruction": "x" * 40})
    (end,) = (anchor for anchor in told.anchors if anchor.kind == "recheck")
    assert anchors_for(told, recheck, end.tokens + 10) is Skip.OVERLONG
    assert anchors_for(told, recheck, end.tokens + 11) == [end]
    wants_five = of({"type": "recheck", "instruction": "x" * 40}, budget=5)
    assert anchors_for(told, wants_five, end.tokens + 14) is Skip.OVERLONG
    assert anchors_for(told, wants_five, end.tokens + 15) == [end]


def test_a_source_whose_reward_lies_outside_of_the_band_is_counted_and_keeps_its_places() -> None:
    """A later reward may lie in it (decisions/replay#13 and #26)."""
    buffer = BufferSettings.model_validate(
        {"derivations": [{"name": "wrong", "derive": {"type": "recheck"}, "select": {"max_source_reward": 0.5}}]}
    )
    skips: Counter[tuple[str, Skip]] = Counter()
    source = Screening(buffer).offer_of(row(reward=1.0), skips)
    assert source
    assert source.size == 1
    assert skips == {("wrong", Skip.SOURCE_REWARD): 1}
    assert Screening(buffer).offer_of(row(reward=0.5), skips)
    assert skips.total() == 1


def test_what_is_derived_of_an_eval_trains() -> None:
    given = [{"name": "again", "derive": {"type": "recheck"}, "select": {"eval": True}}]
    log = PartitionLog(settings_of(buffer={"derivations": given}))
    log.append(*(rollout("e", member, kind="eval") for member in range(2)))
    log.append(*(rollout(name, member) for name in "ab" for member in range(2)))
    owner = Owner(log)
    owner.settle()
    evals = [source.row.offset for source, _ in owner.shard.fold.pool if source.row.kind is RunKind.EVAL]
    assert evals == [0, 1]
    drawn = {seed.source.where.offset: seed.run_kind for seed in log.seeds if seed.source}
    assert drawn.keys() & {0, 1}
    assert set(drawn.values()) == {RunKind.TRAIN}
