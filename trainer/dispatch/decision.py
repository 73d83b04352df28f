"""What becomes of a group at a train step: wait, hold, train, ask for members again, or drop (design/trainer#settling).

Guarantees: pure, a function of the fold of the group, the step, the policies and the settings; called when a group
settles and again when it is drawn. The baseline set A are the completed members with a reward that are not left out;
failed and cancelled ones are not zeros. Leaves out: the staleness rule (`rolloutlog.trainer.staleness.rule`), and
writing.
"""

from __future__ import annotations

from dataclasses import dataclass

from rolloutlog.contract.policies import History
from rolloutlog.contract.settings import Deadline, TrainerSettings
from rolloutlog.contract.vocabulary import DropReason
from rolloutlog.trainer.groups.pending_group import PendingGroup
from rolloutlog.trainer.staleness.rule import Rule, judge
from rolloutlog.trainer.staleness.verdicts import GroupVerdict, MemberVerdict


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
    """Those members expired and are made again."""

    verdict: GroupVerdict
    members: tuple[MemberVerdict, ...]


@dataclass(slots=True, frozen=True)
class Drop:
    """Never trained."""

    verdict: GroupVerdict
    reason: DropReason


Decision = Waiting | Held | Ready | Reroll | Drop


@dataclass(slots=True, frozen=True)
class DispatchPolicy:
    """Everything but the group that a decision depends on."""

    settings: TrainerSettings
    history: History

    @property
    def rule(self) -> Rule:
        """The staleness rule; a stream over imported policies alone isn't live."""
        return Rule.of(self.settings.staleness, self.settings.sync_period, live=self.history.started)

    def decide(self, pending: PendingGroup, step: int | None, clock: int) -> Decision:
        """Decide for train step `step` (None: the group's newest version + 1) at the partition's time `clock`."""
        tokens = [pending.tokens[i] for i in pending.complete_members]
        verdict = judge(tokens, step, self.history, self.rule)
        required = self.required(pending, clock)
        if required is None:
            return Waiting(verdict)
        usable = [m.member for m in verdict.members if m.usable]
        if len(usable) < required:
            if verdict.unknown:
                return Drop(verdict, DropReason.UNKNOWN_POLICY)
            if verdict.expired:
                return self._expired(pending, verdict)
        return self._kept(pending, verdict.only(usable[: pending.group.needed]))

    def required(self, pending: PendingGroup, clock: int) -> int | None:
        """Members that suffice now; None while the group waits for more.

        The members that it needs, where they are there or nothing more will come; after a deadline, `k` of them, unless
        records of it may have been deleted.
        """
        group, straggler = pending.group, self.settings.straggler
        if group.size and (pending.resolved or pending.complete >= group.needed):
            return group.needed
        if pending.cut or not isinstance(straggler, Deadline):
            return None
        if clock - pending.timestamp >= straggler.seconds * 1000:
            return straggler.k if pending.complete >= straggler.k else None
        return None

    def _expired(self, pending: PendingGroup, verdict: GroupVerdict) -> Decision:
        """Too few members are left: what to do is a setting, and needs somebody who can be asked."""
        chosen = self.settings.staleness.expiry.type
        if chosen in ("drop-group", "keep-as-baseline"):
            return Drop(verdict, DropReason.EXPIRED)
        if pending.group.origin is None:
            return Drop(verdict, DropReason.NO_SEED)
        return Reroll(verdict, verdict.members if chosen == "reroll-group" else verdict.expired)

    def _kept(self, pending: PendingGroup, verdict: GroupVerdict) -> Decision:
        """The baseline set A decides whether there is anything to learn from the group."""
        rewards = {pending.group.members[m.member].reward for m in verdict.members}
        if len(verdict.members) < self.settings.min_survivors:
            return Drop(verdict, DropReason.SINGLE if pending.group.size == 1 else DropReason.SURVIVORS)
        if not verdict.trainable_tokens:
            return Drop(verdict, DropReason.NO_TOKEN)
        if self.settings.drop_zero_variance and len(verdict.members) > 1 and len(rewards) == 1:
            return Drop(verdict, DropReason.ZERO_VARIANCE)
        until = verdict.held_until
        return Ready(verdict) if until is None else Held(verdict, until)
