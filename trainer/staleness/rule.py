"""How old a member's tokens are at a train step, and what follows: the one owner of the staleness rule
(design/staleness#tests).

Guarantees: `judge` is pure, and dispatch and views call it alone, so they never disagree. The arithmetic is XTuner's
(decisions/staleness#42 to #70): staleness is `t - v - 1` train steps, thresholds are `(n + 1) * W`, stale at `>=`; the
oldest sampled token of an agent that trains is tested first, then single tokens, then whether any is left. Masks are 0
or 1, of the response's length, and the producer's own loss mask is always respected. Leaves out: what becomes of the
group (`rolloutlog.trainer.dispatch.decision`), and whether a policy was ever published: the trainer's test alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from rolloutlog.contract.policies import History
from rolloutlog.contract.record.segments import I64, Runs
from rolloutlog.contract.settings import KeepAsBaseline, Staleness, Truncated
from rolloutlog.contract.vocabulary import Verdict
from rolloutlog.trainer.staleness.mask_runs import NOTHING, Bools, Spans, tokens_in
from rolloutlog.trainer.staleness.masks import Each, fresh_runs, runs_together, spans_together
from rolloutlog.trainer.staleness.verdicts import Cause, GroupVerdict, MemberTokens, MemberVerdict

UNKNOWN_VERSION = -1
NEVER = 1 << 62
"""Above every version."""
FEW = 8
"""Runs of a member that plain numbers judge sooner than arrays, of which each operation costs as much as some ten."""


def threshold(allowed: int | None, sync_period: int) -> int | None:
    """Staleness in train steps from which on something is stale; None: the test is off (decisions/staleness#43, #49 and
    #53)."""
    if sync_period < 1:
        raise ValueError(f"a sync period is at least one train step, not {sync_period}")
    if allowed is None:
        return None
    if allowed < 0:
        raise ValueError(f"staleness is at least 0 sync periods, not {allowed}")
    return (allowed + 1) * sync_period


@dataclass(slots=True, frozen=True)
class Rule:
    """The staleness settings (`rolloutlog.contract.trainer_settings.Staleness`), thresholds in train steps, and what
    answers do that were cut."""

    sequence: int | None = None
    token: int | None = None
    keep_as_baseline: bool = False
    exempt_unknown: bool = True
    drop_abandoned: bool = False
    truncated: Truncated = "train"

    @classmethod
    def of(cls, settings: Staleness, sync_period: int, *, live: bool, truncated: Truncated = "train") -> Rule:
        """The rule of a run; `live` once a trainer has started a timeline: there unknown policies drop by default."""
        unknown = settings.on_unknown or ("drop" if live else "exempt")
        return cls(
            sequence=threshold(settings.max_staleness, sync_period),
            token=threshold(settings.max_token_staleness, sync_period),
            keep_as_baseline=isinstance(settings.on_expire, KeepAsBaseline),
            exempt_unknown=unknown == "exempt",
            drop_abandoned=settings.abandoned == "drop",
            truncated=truncated,
        )

    def next_change(self, verdict: GroupVerdict) -> int | None:
        """The next step at which age makes another member fail a test, if nothing else changes: its oldest token is
        stale, or all are. A producer's own mask may bring that forward, which is seen at the draw. None: never."""
        ages = [
            (m.oldest, self.sequence) for m in verdict.members if m.oldest is not None and self.sequence is not None
        ]
        ages += [(m.newest, self.token) for m in verdict.members if m.newest is not None and self.token is not None]
        steps = (version + limit + 1 for version, limit in ages)
        return min((step for step in steps if step > verdict.step), default=None)


def effective_versions(runs: Runs, history: History) -> tuple[I64, Bools]:
    """Effective version of each run (design/record#effective-version; `UNKNOWN_VERSION` without a common ancestor), and
    what is abandoned."""
    versions = runs.versions.astype(np.int64)
    abandoned = np.zeros(len(versions), np.bool_)
    if (runs.timelines == history.timeline).all():
        return versions, abandoned
    for timeline in np.unique(runs.timelines):
        here = runs.timelines == timeline
        shared = history.shared_until(int(timeline))
        if shared is None:
            versions[here] = UNKNOWN_VERSION
        else:
            abandoned |= here & (versions > shared)
            versions[here] = np.minimum(versions[here], shared)
    return versions, abandoned


def judge(members: Sequence[MemberTokens], step: int | None, history: History, rule: Rule) -> GroupVerdict:
    """Judge a group's completed members for train step `step`; None: for its newest version + 1, so none is held.

    All members' runs are looked at together, whole columns at a time; those of few that are all young in numbers.
    """
    at, ages, spans = _all_fresh(members, step, history.timeline, rule) or _by_runs(members, step, history, rule)
    return GroupVerdict(at, tuple(_judge(*facts, at, rule) for facts in zip(members, ages, spans, strict=True)))


Looked = tuple[int, "list[_Age]", list[Spans]]
"""The step, and of each member how old it is and which tokens train."""


def _by_runs(members: Sequence[MemberTokens], step: int | None, history: History, rule: Rule) -> Looked:
    versions, abandoned = effective_versions(runs_together([member.runs for member in members]), history)
    known = versions != UNKNOWN_VERSION
    ages = _ages(members, versions, known, abandoned)
    at = _step(ages, step)
    fresh = fresh_runs(versions, known, at, rule.token)
    return at, ages, spans_together(members, None if fresh.all() else fresh)


def _all_fresh(members: Sequence[MemberTokens], step: int | None, timeline: int, rule: Rule) -> Looked | None:
    """The same where no token is stale, of members that have few runs, all of this timeline and of agents that train;
    None elsewhere."""
    ages: list[_Age] = []
    for member in members:
        versions, timelines = member.runs.versions, member.runs.timelines
        if len(versions) > FEW or member.judged is not None or timelines.tolist() != [timeline] * len(timelines):
            return None
        known = versions.tolist()
        ages.append(_Age(len(known), min(known, default=None), max(known, default=None), True, False))
    at, limit = _step(ages, step), rule.token
    if limit is not None and any(age.oldest is not None and at - age.oldest - 1 >= limit for age in ages):
        return None
    return at, ages, spans_together(members, None)


def _step(ages: Sequence[_Age], step: int | None) -> int:
    if step is not None:
        return step
    newest = max((age.newest for age in ages if age.newest is not None), default=UNKNOWN_VERSION)
    return max(newest, 0) + 1


class _Age(NamedTuple):
    """What the judged runs of a member say; `runs` is how many there are."""

    runs: int
    oldest: int | None
    newest: int | None
    known: bool
    abandoned: bool


def _ages(members: Sequence[MemberTokens], versions: I64, known: Bools, abandoned: Bools) -> list[_Age]:
    """Ages by the runs of agents that train: policies of others make nothing stale."""
    counts = [len(member.runs.lengths) for member in members]
    if any(member.judged is not None for member in members):
        own = [np.ones(n, np.bool_) if m.judged is None else m.judged for m, n in zip(members, counts, strict=True)]
        judged = np.concatenate(own)
        versions, known, abandoned = versions[judged], known[judged], abandoned[judged]
        counts = [int(each.sum()) for each in own]
    each, whole = Each.of(counts), bool(known.all())
    oldest = each.reduced(np.minimum, versions if whole else np.where(known, versions, NEVER), NEVER)
    newest = each.reduced(np.maximum, versions, UNKNOWN_VERSION)
    all_known = [True] * len(counts) if whole else each.reduced(np.logical_and, known, True)
    any_abandoned = each.reduced(np.logical_or, abandoned, False) if abandoned.any() else [False] * len(counts)
    return [
        _Age(n, None if old == NEVER else old, None if new == UNKNOWN_VERSION else new, knows, left)
        for n, old, new, knows, left in zip(counts, oldest, newest, all_known, any_abandoned, strict=True)
    ]


def _judge(member: MemberTokens, age: _Age, spans: Spans, step: int, rule: Rule) -> MemberVerdict:
    # An empty response has nothing to be old (decisions/staleness#45); one of unknown policies has no age.
    staleness = step - age.oldest - 1 if age.oldest is not None else (None if age.runs else 0)
    may_train, cut = member.may_train, member.truncated and rule.truncated != "train"
    nothing_left = may_train > 0 and not len(spans) and not cut
    cause = _cause(rule, staleness, age, nothing_left=nothing_left, truncated=cut and may_train > 0)
    trained = tokens_in(spans) if cause is None else 0
    if cause is not None:
        spans, verdict = NOTHING, _failed_verdict(cause, rule)
    elif not may_train:
        verdict = Verdict.EXEMPT
    elif not age.known:
        verdict = Verdict.UNKNOWN
    else:
        verdict = Verdict.FRESH if trained == may_train else Verdict.PARTLY
    return MemberVerdict(
        member.member, member.attempt, verdict, staleness, member.response_tokens, spans, trained, cause,
        age.oldest, age.newest,
    )  # fmt: skip


def _cause(rule: Rule, staleness: int | None, age: _Age, *, nothing_left: bool, truncated: bool) -> Cause | None:
    """The first test that the member fails, in the order of the rule (decisions/staleness#69 and #70)."""
    if not age.known and not rule.exempt_unknown:
        return Cause.UNKNOWN
    if age.abandoned and rule.drop_abandoned:
        return Cause.ABANDONED
    if rule.sequence is not None and staleness is not None and staleness >= rule.sequence:
        return Cause.SEQUENCE
    if nothing_left:
        return Cause.TOKENS
    return Cause.TRUNCATED if truncated else None


def _failed_verdict(cause: Cause, rule: Rule) -> Verdict:
    if cause is Cause.UNKNOWN:
        return Verdict.UNKNOWN
    if cause is Cause.TRUNCATED:
        return Verdict.EXEMPT if rule.truncated == "mask" else Verdict.BASELINE
    return Verdict.BASELINE if rule.keep_as_baseline else Verdict.EXPIRED
