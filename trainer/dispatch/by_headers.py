"""A look at a group whose values weren't read: is it ready beyond doubt, if its headers tell the truth?
(design/trainer#values)

Guarantees: pure, and cheap; who is told yes still reads the values before the group is drawn, so a lie costs nothing.
Leaves out: everything in which age, agents or filters have a say: then the values are read at once.
"""

from __future__ import annotations

from collections.abc import Iterable

from rolloutlog.contract.vocabulary import Verdict
from rolloutlog.trainer.dispatch.decision import DispatchPolicy
from rolloutlog.trainer.groups.announced import Announced
from rolloutlog.trainer.groups.pending_group import PendingGroup
from rolloutlog.trainer.staleness.mask_runs import NOTHING
from rolloutlog.trainer.staleness.verdicts import GroupVerdict, MemberVerdict


def ready_by_headers(pending: PendingGroup, dispatch: DispatchPolicy, step: int, most: int) -> GroupVerdict | None:
    """The verdict on the `most` members that would be kept of a group that isn't waited for, if all of them are surely
    fresh at that step; None where their values must be read to know. Masks aren't in it."""
    kept, unread = pending.complete_members[:most], pending.unread
    facts = [unread[member] for member in kept if member in unread]
    if len(facts) < len(kept) or dispatch.filters or not dispatch.weighed(pending.env):
        return None
    if dispatch.settings.truncated != "train":  # of which headers say half
        return None
    if not _learnable(pending, dispatch, kept):
        return None
    rule, timeline = dispatch.rule_of(pending.env), dispatch.history.timeline
    limit = min((limit for limit in (rule.sequence, rule.token) if limit is not None), default=None)
    for fact in facts:
        if fact.oldest.timeline != timeline or fact.newest.timeline != timeline or fact.newest.version >= step:
            return None
        if limit is not None and step - fact.oldest.version - 1 >= limit:
            return None
    return GroupVerdict(step, tuple(_fresh(fact, step) for fact in facts))


def _learnable(pending: PendingGroup, dispatch: DispatchPolicy, kept: Iterable[int]) -> bool:
    members = pending.group.members
    rewards = [members[member].reward for member in kept]
    varied = not dispatch.settings.drop_zero_variance or len(set(rewards)) > 1
    return varied and len(rewards) >= dispatch.settings.min_survivors


def _fresh(fact: Announced, step: int) -> MemberVerdict:
    oldest, newest = fact.oldest.version, fact.newest.version
    return MemberVerdict(
        fact.slot.member, fact.slot.attempt, Verdict.FRESH, step - oldest - 1, fact.tokens, NOTHING, 0, None,
        oldest, newest,
    )  # fmt: skip
