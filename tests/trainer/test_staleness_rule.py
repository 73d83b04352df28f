"""The staleness rule as a specification: design/staleness#tests, decisions/staleness#42 to #70."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from rolloutlog.contract.policies import History, Policy
from rolloutlog.contract.record.node import Node
from rolloutlog.contract.record.rollout import Rollout
from rolloutlog.contract.record.segments import Runs
from rolloutlog.contract.record.trajectory import Column, Trajectory
from rolloutlog.contract.settings import DropGroup, KeepAsBaseline, Staleness
from rolloutlog.contract.vocabulary import Verdict
from rolloutlog.trainer.staleness.agents import claimed_policies
from rolloutlog.trainer.staleness.mask_runs import mask_of
from rolloutlog.trainer.staleness.rule import Rule, judge, threshold
from rolloutlog.trainer.staleness.verdicts import Cause, GroupVerdict, MemberTokens, MemberVerdict

Steps = Sequence[int] | Sequence[tuple[int, int]]


def tokens(steps: Steps, loss_mask: Sequence[int] | None = None, member: int = 0) -> MemberTokens:
    """A member from one policy per response token; bare versions are of timeline 0."""
    pairs = [step if isinstance(step, tuple) else (0, step) for step in steps]
    pieces = [(policy, len(list(some))) for policy, some in groupby(pairs)]
    runs = Runs(
        np.array([t for (t, _), _ in pieces], np.int32),
        np.array([v for (_, v), _ in pieces], np.int32),
        np.array([n for _, n in pieces], np.int64),
    )
    mask = None if loss_mask is None else np.array(loss_mask, np.bool_)
    return MemberTokens(member, 1, len(steps), runs, mask)


def history(*forks: tuple[int, int | None, int]) -> History:
    """Timelines `(number, parent, fork step)` in the order in which they were started."""
    made = History()
    for fork in forks or [(0, None, 0)]:
        made.start(*fork)
    return made


def judged(steps: Steps, step: int | None, rule: Rule, loss_mask: Sequence[int] | None = None) -> MemberVerdict:
    return judge([tokens(steps, loss_mask)], step, history(), rule).members[0]


def mask(verdict: MemberVerdict) -> list[int]:
    return mask_of(verdict.mask_runs, verdict.response_tokens).astype(int).tolist()


def test_row_10_future_versions_are_fresh_but_held() -> None:
    """A version that isn't in the past yet is neither stale nor trained: the group waits for its step
    (decisions/staleness#48)."""
    group = judge([tokens([5, 9])], 5, history(), Rule(token=1))
    assert group.held_until == 10
    assert judge([tokens([5, 9])], 10, history(), Rule()).held_until is None
    assert group.members[0].seq_staleness == -1


def test_rows_14_16_and_17_lengths_that_disagree_are_an_error() -> None:
    """An empty mask, short steps and a short mask are never paired to the shortest (decisions/staleness#62, #63)."""
    with pytest.raises(ValueError, match="loss mask has 0 entries"):
        tokens([0, 4], [])
    with pytest.raises(ValueError, match="loss mask has 1 entries"):
        tokens([4, 4, 4], [1])
    with pytest.raises(ValueError, match="segments cover 1 of 3"):
        MemberTokens(0, 1, 3, Runs(np.array([0], np.int32), np.array([4], np.int32), np.array([1])))


def test_row_15_members_of_agents_are_judged_like_any_other() -> None:
    """All tokens lie on one axis, so no group is exempt because an agent is in it (decisions/staleness#64 and #65)."""
    group = judge([tokens([0, 4]), tokens([4, 4], member=1)], 5, history(), Rule(token=1))
    assert [mask(member) for member in group.members] == [[0, 1], [1, 1]]


def test_row_18_masks_are_strictly_zero_or_one() -> None:
    """A producer's 2 means 1 (decisions/staleness#62)."""
    rollout = Rollout.flat(
        prompt_ids=[1], response_ids=[2, 3], logprobs=[0.0, 0.0], versions=4, group="g", member=0, group_size=1
    )
    rollout.trajectory.columns["loss_mask"] = Column(np.array([2, 1], np.uint8), "sampled")
    member = MemberTokens.of(0, 1, rollout.trajectory)
    assert mask(judge([member], 5, history(), Rule(token=1)).members[0]) == [1, 1]


def unknown_member() -> MemberTokens:
    rollout = Rollout.flat(
        prompt_ids=[1], response_ids=[2, 3], logprobs=[0.0, 0.0], versions=4, group="g", member=0, group_size=1
    )
    rollout.trajectory.segments = np.empty((0, 3), np.int32)
    rollout.trajectory.nodes[:, 3] = 0
    return MemberTokens.of(0, 1, rollout.trajectory)


@pytest.mark.parametrize(("exempt", "expected"), [(True, [1, 1]), (False, [0, 0])])
def test_row_19_missing_provenance_is_a_verdict_not_a_crash(exempt: bool, expected: list[int]) -> None:
    """`unknown`, and `on_unknown` says whether it trains (decisions/staleness#63)."""
    said = judge([unknown_member()], 5, history(), Rule(sequence=1, token=1, exempt_unknown=exempt)).members[0]
    assert (said.verdict, said.seq_staleness, mask(said)) == (Verdict.UNKNOWN, None, expected)
    assert said.usable is exempt


def test_row_20_thresholds_that_would_mask_everything_are_refused() -> None:
    """Thresholds follow from W, and are at least one step (decisions/staleness#49 and #53)."""
    for allowed, period in ((-1, 1), (0, 0), (0, -1)):
        with pytest.raises(ValueError, match="at least"):
            threshold(allowed, period)
    for name in ("max_staleness", "max_token_staleness"):
        with pytest.raises(ValidationError, match="greater than or equal to 0"):
            Staleness.model_validate({name: -1})


@pytest.mark.parametrize(
    ("period", "allowed", "usable"),
    [
        (1, 0, range(5, 6)),
        (1, 1, range(5, 7)),
        (4, 0, range(5, 9)),
        (4, 1, range(5, 13)),
        (2, 3, range(5, 13)),
    ],
)
def test_usable_steps_of_version_4(period: int, allowed: int, usable: range) -> None:
    """Stale at `>=`, the same boundary for the sequence test and for single tokens (decisions/staleness#42 to #45)."""
    limit = threshold(allowed, period)
    steps = range(5, 20)
    assert [t for t in steps if judged([4], t, Rule(sequence=limit)).usable] == list(usable)
    assert [t for t in steps if mask(judged([4, 19], t, Rule(token=limit)))[0]] == list(usable)


def test_none_turns_a_test_off() -> None:
    """`None` turns a test off (decisions/staleness#43)."""
    assert threshold(None, 4) is None
    assert judged([0], 1000, Rule()).verdict is Verdict.FRESH


def test_on_policy_is_staleness_zero() -> None:
    """The oldest token decides; no token has age 0 (decisions/staleness#42 and #45)."""
    assert judged([4], 5, Rule()).seq_staleness == 0
    assert judged([], 5, Rule()).seq_staleness == 0
    assert judged([1, 3, 3], 5, Rule()).seq_staleness == 3


def test_a_group_is_as_stale_as_its_oldest_member() -> None:
    """A group is as stale as its oldest member (decisions/staleness#46)."""
    assert judge([tokens([4]), tokens([1, 4], member=1)], 5, history(), Rule()).oldest == 1


def test_the_sequence_test_comes_first() -> None:
    """The oldest sampled token decides, even where fresh tokens are left (decisions/staleness#69)."""
    said = judged([0, 4], 5, Rule(sequence=4, token=2))
    assert (said.verdict, said.cause, mask(said)) == (Verdict.EXPIRED, Cause.SEQUENCE, [0, 0])


def test_a_member_without_a_trainable_token_expires() -> None:
    """A member without a trainable token expires (decisions/staleness#70)."""
    said = judged([0, 1], 5, Rule(sequence=10, token=2))
    assert (said.verdict, said.cause) == (Verdict.EXPIRED, Cause.TOKENS)


def test_the_sequence_test_covers_tokens_that_the_producer_masks() -> None:
    """An all-zero loss mask is no way around the sequence test; token staleness alone never expires it (row 13)."""
    assert judged([0, 0], 5, Rule(sequence=4), [0, 0]).verdict is Verdict.EXPIRED


def test_policies_of_agents_that_do_not_train_make_nothing_stale_and_hold_nobody() -> None:
    """A judge's old weights, and an opponent's of the future or of nobody's timeline, are recorded and no more
    (design/staleness#tests)."""
    mixed = tokens([(0, 0), (0, 4), (9, 1), (0, 30)], [0, 1, 0, 0])
    strict = Rule(sequence=1, token=1, exempt_unknown=False, drop_abandoned=True)
    assert judge([mixed], 5, history(), strict).members[0].cause is Cause.UNKNOWN
    own = replace(mixed, judged=np.array([False, True, False, False]))
    group = judge([own], 5, history(), strict)
    said = group.members[0]
    assert (said.verdict, said.seq_staleness, said.oldest, said.newest) == (Verdict.FRESH, 0, 4, 4)
    assert (group.held_until, mask(said)) == (None, [0, 1, 0, 0])
    assert judge([own], None, history(), strict).step == 5
    nobody = judge([replace(own, judged=np.zeros(4, np.bool_), loss_mask=np.zeros(4, np.bool_))], 5, history(), strict)
    assert (nobody.members[0].verdict, nobody.members[0].oldest) == (Verdict.EXEMPT, None)


def test_agents_that_train_are_those_of_the_table() -> None:
    """Each run has its node's agent, and claims its policy for it alone (design/record#agents)."""

    def turn(parent: int, agent: int, version: int) -> Node:
        return Node(
            parent=parent, sampled=True, agent=agent, token_ids=[7, 8], mask=[1, 1], logprobs=[0.0, 0.0],
            segments=[(0, version, 0)],
        )  # fmt: skip

    table = [{"name": "solver"}, {"name": "judge", "trainable": False}]
    made = Trajectory.build([Node(token_ids=[1], mask=[0]), turn(0, 0, 4), turn(1, 1, 0)], {"agents": table})
    member = MemberTokens.of(0, 1, made)
    assert member.judged is not None
    assert member.judged.tolist() == [True, False]
    assert claimed_policies(made) == {Policy(0, 4)}
    assert judge([member], 5, history(), Rule(sequence=1)).members[0].verdict is Verdict.FRESH
    made.record["agents"][1]["trainable"] = True
    assert judge([MemberTokens.of(0, 1, made)], 5, history(), Rule(sequence=1)).members[0].verdict is Verdict.EXPIRED
    assert claimed_policies(made) == {Policy(0, 4), Policy(0, 0)}


def test_an_expired_member_may_stay_as_baseline_without_tokens() -> None:
    """It stays in the baseline, and out of the loss (decisions/staleness#67)."""
    said = judged([0, 4], 9, Rule(sequence=4, keep_as_baseline=True))
    assert (said.verdict, said.usable, said.trainable_tokens) == (Verdict.BASELINE, True, 0)


def test_siblings_are_judged_one_by_one() -> None:
    """`[v0, v0]` and `[v4, v4]` at step 5, token threshold 4; at step 9 both are gone (decisions/staleness#71 and
    #73)."""
    group = [tokens([0, 0]), tokens([4, 4], member=1)]
    rule = Rule(sequence=10, token=4)
    assert [m.verdict for m in judge(group, 5, history(), rule).members] == [Verdict.EXPIRED, Verdict.FRESH]
    assert [m.verdict for m in judge(group, 9, history(), rule).members] == [Verdict.EXPIRED, Verdict.EXPIRED]


def test_without_a_step_a_group_is_judged_right_after_its_newest_version() -> None:
    """Nothing is held then (design/trainer#imported)."""
    group = judge([tokens([2]), tokens([7, 5], member=1)], None, history(), Rule(sequence=4))
    assert (group.step, group.held_until) == (8, None)
    assert [m.verdict for m in group.members] == [Verdict.EXPIRED, Verdict.FRESH]
    assert judge([unknown_member()], None, history(), Rule()).step == 1


def test_tokens_of_an_abandoned_timeline_count_from_the_fork() -> None:
    """Above the fork step the effective version is the fork step, below it the history is shared
    (design/record#effective-version)."""
    now = history((0, None, 0), (1, 0, 10))
    shared, lost = tokens([(0, 8)]), tokens([(0, 14), (1, 11)], member=1)
    group = judge([shared, lost], 12, now, Rule(sequence=2))
    assert [(m.oldest, m.newest) for m in group.members] == [(8, 8), (10, 11)]
    assert [m.verdict for m in group.members] == [Verdict.EXPIRED, Verdict.FRESH]
    assert group.held_until is None
    dropped = judge([lost], 12, now, Rule(drop_abandoned=True)).members[0]
    assert (dropped.verdict, dropped.cause) == (Verdict.EXPIRED, Cause.ABANDONED)
    at_the_fork = judge([tokens([(0, 10)])], 12, now, Rule(drop_abandoned=True)).members[0]
    assert at_the_fork.verdict is Verdict.FRESH, "its version is still shared"


def test_the_lowest_fork_on_the_walk_counts() -> None:
    """Timeline 2 goes on from step 5 of timeline 1, which went on from step 10 of timeline 0
    (design/record#effective-version)."""
    now = history((0, None, 0), (1, 0, 10), (2, 0, 5))
    assert judge([tokens([(1, 12)])], 6, now, Rule()).members[0].newest == 5


def test_tokens_without_a_common_ancestor_are_unknown() -> None:
    """`abandoned` (design/record#effective-version)."""
    now = history((0, None, 0), (1, None, 0))
    said = judge([tokens([(0, 3), (1, 4)])], 5, now, Rule(sequence=1, token=1)).members[0]
    assert (said.verdict, said.seq_staleness, mask(said)) == (Verdict.UNKNOWN, 0, [1, 1])


def test_the_rule_of_a_run() -> None:
    """Unknown policies are dropped live and exempt offline, unless settings say otherwise (design/staleness#tests)."""
    assert Rule.of(Staleness(), 4, live=True) == Rule(sequence=8, exempt_unknown=False)
    assert Rule.of(Staleness(), 4, live=False) == Rule(sequence=8)
    chosen = Staleness(
        max_staleness=3, max_token_staleness=1, on_expire=KeepAsBaseline(), on_unknown="exempt", abandoned="drop"
    )
    assert Rule.of(chosen, 2, live=True) == Rule(8, 4, keep_as_baseline=True, drop_abandoned=True)


@pytest.mark.parametrize("token", [1, 2])
def test_settings_that_could_never_mask_are_refused(token: int) -> None:
    """Token masks below the sequence limit only; the loss of a member must be chosen (decisions/staleness#50, #173)."""
    with pytest.raises(ValidationError, match="never masks anything"):
        Staleness(max_staleness=1, max_token_staleness=token, on_expire=DropGroup())
    with pytest.raises(ValidationError, match="set on_expire"):
        Staleness(max_staleness=1, max_token_staleness=0)


def naive(
    steps: list[int], semantic: list[bool] | None, own: list[bool], step: int, rule: Rule
) -> tuple[Verdict, list[int]]:
    """The rule token by token, as one would write it down; `own` are those of agents that train."""
    kept = [o and (semantic is None or semantic[i]) for i, o in enumerate(own)]
    ages = [step - v - 1 for v, o in zip(steps, own, strict=True) if o]
    nothing = [0] * len(steps)
    if ages and rule.sequence is not None and max(ages) >= rule.sequence:
        return Verdict.EXPIRED, nothing
    fresh = [rule.token is None or step - v - 1 < rule.token for v in steps]
    mask = [int(k and f) for k, f in zip(kept, fresh, strict=True)]
    if not any(kept):
        return Verdict.EXEMPT, nothing
    if not any(mask):
        return Verdict.EXPIRED, nothing
    return (Verdict.FRESH if sum(mask) == sum(kept) else Verdict.PARTLY), mask


limits = st.none() | st.integers(1, 12)


@given(st.data(), st.lists(st.integers(0, 12), max_size=25), st.integers(1, 16), limits, limits)
def test_runs_and_arrays_agree_with_the_rule_token_by_token(
    data: st.DataObject, steps: list[int], step: int, sequence: int | None, token: int | None
) -> None:
    """An oracle with one Python loop per token (decisions/staleness#56 to #61)."""
    flags = st.lists(st.booleans(), min_size=len(steps), max_size=len(steps))
    semantic, own = data.draw(st.none() | flags), data.draw(st.just([True] * len(steps)) | flags)
    rule = Rule(sequence=sequence, token=token)
    kept = [o and (semantic is None or semantic[i]) for i, o in enumerate(own)]
    # a run ends where the policy changes, or the agent: runs of an agent that doesn't train are timeline 1 here
    member = tokens([(0 if o else 1, v) for v, o in zip(steps, own, strict=True)], [int(k) for k in kept])
    runs = Runs(np.zeros_like(member.runs.timelines), member.runs.versions, member.runs.lengths)
    member = replace(member, runs=runs, judged=member.runs.timelines == 0)
    said = judge([member], step, history(), rule).members[0]
    assert (said.verdict, mask(said)) == naive(steps, semantic, own, step, rule)


@given(st.lists(st.lists(st.integers(0, 9), min_size=1, max_size=6), min_size=1, max_size=4), st.integers(1, 12))
def test_time_only_makes_staler(group: list[list[int]], step: int) -> None:
    """Judged again at a later step, no token comes back and no member gets younger (decisions/staleness#55)."""
    members = [tokens(steps, member=i) for i, steps in enumerate(group)]
    rule = Rule(sequence=6, token=3)
    before, after = judge(members, step, history(), rule), judge(members, step + 1, history(), rule)

    def ages(verdict: GroupVerdict) -> list[int]:
        return [m.seq_staleness or 0 for m in verdict.members]

    assert [age + 1 for age in ages(before)] == ages(after)
    for early, late in zip(before.members, after.members, strict=True):
        assert all(x >= y for x, y in zip(mask(early), mask(late), strict=True))


def test_judging_changes_nothing() -> None:
    """The rule is pure (decisions/staleness#58)."""
    member = tokens([0, 4], [1, 1])
    judge([member], 5, history(), Rule(token=1))
    assert member.runs.versions.tolist() == [0, 4]
    assert member.loss_mask is not None
    assert member.loss_mask.tolist() == [True, True]


def test_policies_are_pairs() -> None:
    """A number that a resume used again is another policy (design/record#policies)."""
    assert Policy(0, 3) != Policy(1, 3)
