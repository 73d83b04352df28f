"""What becomes of a group at a train step: wait, hold, train, ask for members again, or drop (design/trainer#settling).

Guarantees: pure, a function of the fold of the group, the step, the policies and the settings; called when a group
settles and again when it is drawn. Fresh members are kept first, and nobody is asked for who won't be waited for. The
baseline set A are the completed members with a reward that are not left out; failed and cancelled ones are not zeros.
Leaves out: the staleness rule (`rolloutlog.trainer.staleness.rule`), how many members suffice (`stragglers`), and
writing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass, field, replace

from rolloutlog.contract.policies import History
from rolloutlog.contract.settings import (
    Deadline,
    DropGroup,
    RerollGroup,
    RerollMembers,
    Staleness,
    TrainerSettings,
    Wait,
)
from rolloutlog.contract.vocabulary import DropReason, Verdict
from rolloutlog.trainer.dispatch.stragglers import Quorum, passed, quorum
from rolloutlog.trainer.groups.filters import GroupFilter, facts_of, objection
from rolloutlog.trainer.groups.pending_group import PendingGroup
from rolloutlog.trainer.staleness.rule import Rule, judge
from rolloutlog.trainer.staleness.verdicts import Cause, GroupVerdict, MemberVerdict

WAIT = Wait()


@dataclass(slots=True, frozen=True)
class Waiting:
    """Members are awaited; `verdict` is of those that are there."""

    verdict: GroupVerdict


@dataclass(slots=True, frozen=True)
class Held:
    """A token was sampled by a policy that isn't in the past yet: not before step `until`."""

    verdict: GroupVerdict
    until: int


@dataclass(slots=True, frozen=True)
class Ready:
    """To be trained; `verdict` speaks of the kept members alone."""

    verdict: GroupVerdict


@dataclass(slots=True, frozen=True)
class Reroll:
    """Those members expired and are made again; `withheld`: not before newer weights are published, since what the
    current ones sample would expire as well."""

    verdict: GroupVerdict
    members: tuple[MemberVerdict, ...]
    withheld: bool = False


@dataclass(slots=True, frozen=True)
class Drop:
    """Never trained; `detail` is what a filter said."""

    verdict: GroupVerdict
    reason: DropReason
    detail: str | None = None


Decision = Waiting | Held | Ready | Reroll | Drop


@dataclass(slots=True, frozen=True)
class DispatchPolicy:
    """Everything but the group that a decision depends on. `history` is of the policies that sampled; offline, where it
    is the source's, nobody is asked for anything again, and no step of the trainer's makes a token older unless it
    was given (`steps`)."""

    settings: TrainerSettings
    history: History
    filters: tuple[GroupFilter, ...] = ()
    asks: bool = True
    steps: bool = True
    _rules: dict[tuple[str | None, bool], Rule] = field(default_factory=dict[tuple[str | None, bool], Rule])

    def rule_of(self, env: str | None) -> Rule:
        """The staleness rule of an environment; a stream over imported policies alone isn't live."""
        key = (env if env in self.settings.environments else None, self.history.started)
        if key not in self._rules:
            staleness = self.settings.staleness_of(key[0])
            settings = self.settings
            self._rules[key] = Rule.of(staleness, settings.sync_period, live=key[1], truncated=settings.truncated)
        return self._rules[key]

    def decide(self, pending: PendingGroup, step: int | None, clock: int) -> Decision:
        """Decide for train step `step` (None: the group's newest version + 1) at the partition's time `clock`."""
        step = self.judged_for(step)
        tokens = [pending.tokens[i] for i in pending.complete_members]
        verdict = judge(tokens, step, self.history, self.rule_of(pending.env))
        call = self.quorum(pending, clock)
        fresh = [m.member for m in verdict.members if m.usable and m.verdict is not Verdict.BASELINE]
        if not pending.group.size or (len(fresh) < call.suffice and not call.over):
            return Waiting(verdict)
        if not self.weighed(pending.env):
            return Drop(verdict, DropReason.ENVIRONMENT)
        if len(fresh) < call.suffice:
            if verdict.unknown:
                return Drop(verdict, DropReason.UNKNOWN_POLICY)
            expired = self._expired(pending, verdict, step, clock)
            if expired is not None:
                return expired
        filling = [m.member for m in verdict.members if m.verdict is Verdict.BASELINE]
        return self._kept(pending, verdict.only([*fresh, *filling][: call.keep]))

    def judged_for(self, step: int | None) -> int | None:
        """The step for which tokens are judged at train step `step`; None: each group has its own."""
        return step if self.steps else None

    def quorum(self, pending: PendingGroup, clock: int) -> Quorum:
        """How many fresh members the group needs now: all, whatever the policy, where records of it may be
        deleted."""
        straggler, needed = WAIT if pending.cut else self.settings.straggler, pending.needed
        over = pending.complete >= needed or pending.resolved or pending.closed or self._waited(pending, clock)
        return quorum(straggler, needed=needed, over=over, passed=passed(straggler, pending.timestamp, clock))

    def required(self, pending: PendingGroup, clock: int) -> int | None:
        """Members that suffice now; None while the group surely waits for more, however fresh those are that it has."""
        call = self.quorum(pending, clock)
        return call.suffice if pending.size and (call.over or pending.complete >= call.suffice) else None

    def due(self, pending: PendingGroup, clock: int) -> int | None:
        """The next moment of the partition's time that may change the decision though nothing comes."""
        straggler, asked, moments = self.settings.straggler, pending.asked_at, list[int]()
        if asked is None and not isinstance(straggler, Deadline):
            return None
        if isinstance(straggler, Deadline):
            moments.append(pending.timestamp + int(straggler.seconds * 1000))
        if asked is not None and (wait_s := self._wait_s(pending)) is not None:
            moments.append(asked + int(wait_s * 1000))
        return min((moment for moment in moments if moment > clock), default=None)

    def weighed(self, env: str | None) -> bool:
        """False for the groups of an environment that gets no part of a batch."""
        weights = self.settings.weights
        return not weights or weights.get(env or "", 0) > 0

    def doomed(self, step: int | None, env: str | None = None) -> bool:
        """True while what the current policy samples would expire at `step` itself: weights must be published first."""
        current, rule = self.history.current, self.rule_of(env)
        limits = [limit for limit in (rule.sequence, rule.token) if limit is not None]
        if self.judged_for(step) is None or step is None or current is None or not limits:
            return False
        return step - current.version - 1 >= min(limits)

    def spent(
        self, pending: PendingGroup, members: Collection[int], step: int
    ) -> tuple[tuple[MemberVerdict, ...], int | None]:
        """Of these aborted members those whose prefix would expire at the step after `step`, so that nobody resumes it
        (decisions/staleness#68), and the step from which the next one does. A stale token alone spends no prefix, since
        fresh ones are added to it."""
        rule = replace(self.rule_of(pending.env), token=None, keep_as_baseline=False)
        verdict = judge([pending.tokens[i] for i in members if i in pending.tokens], step + 1, self.history, rule)
        spent = tuple(m for m in verdict.members if m.cause in (Cause.SEQUENCE, Cause.ABANDONED))
        limit = rule.sequence
        later = [m.oldest + limit for m in verdict.members if m not in spent and m.oldest is not None and limit]
        return spent, min(later, default=None)

    def _staleness(self, pending: PendingGroup) -> Staleness:
        return self.settings.staleness_of(pending.env)

    def _wait_s(self, pending: PendingGroup) -> float | None:
        expiry = self._staleness(pending).expiry
        return expiry.wait_s if isinstance(expiry, RerollMembers | RerollGroup) else None

    def _waited(self, pending: PendingGroup, clock: int) -> bool:
        """True where only members are missing that were asked for again, and too long ago."""
        asked = pending.asked_at
        if asked is None or (wait_s := self._wait_s(pending)) is None or clock - asked < wait_s * 1000:
            return False
        return all(index in pending.tries for index in pending.group.open_members)

    def _expired(self, pending: PendingGroup, verdict: GroupVerdict, step: int | None, clock: int) -> Decision | None:
        """Too few fresh members are left; what follows where some expired. None: the group goes on without those."""
        expiry = self._staleness(pending).expiry
        if not verdict.expired:
            return None
        if isinstance(expiry, DropGroup):
            return Drop(verdict, DropReason.EXPIRED)
        if not isinstance(expiry, RerollMembers | RerollGroup) or not self.askable(pending, clock):
            return None
        judged = verdict.members if isinstance(expiry, RerollGroup) else verdict.expired
        asked = tuple(member for member in judged if _may_ask(pending, member.member, expiry.tries))
        # The shard goes after members only while fewer are complete than the group needs: nobody else is waited for.
        if asked and len(verdict.members) - len(asked) < pending.group.needed:
            return Reroll(verdict, asked, withheld=self.doomed(step, pending.env))
        return None

    def askable(self, pending: PendingGroup, clock: int) -> bool:
        """False where no seed can be asked, or the wait for those that were is over."""
        may_ask = self.asks and pending.group.origin is not None
        return may_ask and not pending.closed and not self._waited(pending, clock)

    def _kept(self, pending: PendingGroup, verdict: GroupVerdict) -> Decision:
        """The baseline set A decides whether there is anything to learn from the group."""
        if len(verdict.members) < self.settings.min_survivors:
            return Drop(verdict, self._too_few(pending, verdict))
        if not verdict.trainable_tokens:
            return Drop(verdict, DropReason.NO_TOKEN)
        if self.settings.drop_zero_variance and len(verdict.members) > 1 and not _differ(pending, verdict):
            return Drop(verdict, DropReason.ZERO_VARIANCE)
        if self.filters and (said := objection(self.filters, facts_of(pending, verdict))) is not None:
            return Drop(verdict, DropReason.FILTERED, said)
        until = verdict.held_until
        return Ready(verdict) if until is None else Held(verdict, until)

    def _too_few(self, pending: PendingGroup, verdict: GroupVerdict) -> DropReason:
        if verdict.stale:
            asks = isinstance(self._staleness(pending).expiry, RerollMembers | RerollGroup)
            seedless = not self.asks or pending.group.origin is None
            return DropReason.NO_SEED if asks and seedless else DropReason.EXPIRED
        return DropReason.SINGLE if pending.group.size == 1 else DropReason.SURVIVORS


def _may_ask(pending: PendingGroup, member: int, tries: int | None) -> bool:
    """False for a member that was asked for as often as it may be, or that was cancelled since it completed."""
    return not pending.group.members[member].cancelled and (tries is None or pending.tries.get(member, 0) < tries)


def _differ(pending: PendingGroup, verdict: GroupVerdict) -> bool:
    """True where the rewards of some agent that trains differ: each is compared with its own kind."""
    rewards: defaultdict[str, set[float | None]] = defaultdict(set)
    members = pending.group.members
    for member in verdict.members:
        own = members[member.member].reward
        for agent in pending.tokens[member.member].agents:
            if agent.trainable:
                rewards[agent.name].add(own if agent.reward is None else agent.reward)
    return any(len(different) > 1 for different in rewards.values())
