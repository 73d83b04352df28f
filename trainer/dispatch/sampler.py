"""Which groups a step consumes: settled groups in order, judged again at the draw (design/trainer#draw).

Guarantees: pure; a group that expires or is dropped on the way becomes an unwritten event at once, with the step that
it was judged for; `pick` takes nothing away. An event is worked off without looking at the other members of its group
or at other groups: a group is judged when enough of its members are there, when its deadline passes, when a step is
reached at which the verdict on it may change, and when it is drawn. Leaves out: who is asked for members that a group
lacks (`awaited_members`), payloads, writing and waiting.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush

from rolloutlog.contract.dispatch_settings import Wait
from rolloutlog.contract.events.group_events import GroupFinal
from rolloutlog.contract.policies import History
from rolloutlog.contract.vocabulary import Verdict
from rolloutlog.trainer.dispatch.admission import Admission, admission_of
from rolloutlog.trainer.dispatch.awaited_members import AwaitedMembers
from rolloutlog.trainer.dispatch.by_headers import ready_by_headers
from rolloutlog.trainer.dispatch.decision import Decision, DispatchPolicy, Drop, Held, Ready, Reroll, Waiting
from rolloutlog.trainer.dispatch.finals import final_of
from rolloutlog.trainer.dispatch.order import Order
from rolloutlog.trainer.dispatch.pick import Pick
from rolloutlog.trainer.dispatch.settled_groups import Judgement, SettledGroup, SettledGroups
from rolloutlog.trainer.dispatch.unwritten_events import UnwrittenEvents
from rolloutlog.trainer.groups.assembly import Assembly
from rolloutlog.trainer.groups.pending_group import PendingGroup
from rolloutlog.trainer.staleness.verdicts import GroupVerdict


@dataclass(slots=True)
class Sampler:
    """The settled groups of all partitions. The caller writes `unwritten`, before it waits or ends. `own` is the
    history of the trainer's timelines, where policies of others have sampled; None: it is the same."""

    assemblies: Mapping[int, Assembly]
    dispatch: DispatchPolicy
    order: Order
    own: History | None = None
    unwritten: UnwrittenEvents = field(default_factory=UnwrittenEvents)
    _settled: SettledGroups = field(default_factory=SettledGroups)
    _doubtful: dict[str, PendingGroup] = field(default_factory=dict[str, PendingGroup])
    _steps: list[tuple[int, str]] = field(default_factory=list[tuple[int, str]])
    _awaited: AwaitedMembers = field(init=False)
    _admission: Admission = field(init=False)
    _digest: str = field(init=False)
    _waits_for_all: bool = field(init=False)

    def __post_init__(self) -> None:
        self._waits_for_all = isinstance(self.dispatch.settings.straggler, Wait)
        self._awaited = AwaitedMembers(self.assemblies, self.dispatch, self.unwritten)
        self._admission = admission_of(self.dispatch.settings)
        self._digest = self.dispatch.settings.digest  # asked once, since it is dear

    @property
    def settled(self) -> int:
        """Groups that are ready or held."""
        return len(self._settled)

    @property
    def ready(self) -> int:
        """Groups that could be drawn now."""
        return self._settled.ready

    @property
    def has_deadlines(self) -> bool:
        """True where time alone may settle a group."""
        return self._awaited.has_deadlines

    @property
    def withheld(self) -> int:
        """Groups that lack members whom nobody is asked for before newer weights are published."""
        return self._awaited.withheld

    def doomed(self, step: int | None) -> bool:
        """True while nothing that is sampled from now on can be trained at `step`: only newer weights help. Whoever
        waits, with no batch lent that may still publish some, waits for nothing else."""
        return all(self.dispatch.doomed(step, env) for env in (None, *self.dispatch.settings.environments))

    def settle(self, partition: int, group: str, step: int | None) -> None:
        """Judge a group that changed, unless that can't have made a difference."""
        pending = self.assemblies[partition].groups.get(group)
        if pending is None or pending.drawn:
            return
        self._doubtful.pop(group, None)
        settled = self._settled.get(group)
        if settled is None:
            self._admission.saw(pending)
            if self._waits_for_all and pending.is_short:  # as most do that something came for
                return
        if settled is None and self._awaited.lacks(pending):
            self._awaited.look_at_prefixes(pending, pending.just_aborted(), step)
            return
        most = self.dispatch.quorum(pending, self._awaited.now(pending)).keep
        if settled is None or pending.stirred or settled.members < most:
            self._judge(pending, step)
        else:
            self._settled.stir(group)

    def settle_overdue(self, step: int | None) -> None:
        """Judge the groups whose deadline the partition's time has passed."""
        for partition, group in self._awaited.overdue():
            self.settle(partition, group, step)

    def to_read(self, size: int, step: int | None) -> list[PendingGroup]:
        """Groups whose values must be read before `size` can be picked, and then settled again."""
        if step is not None:
            self._reach(step)
        round_, left = self._admission.round(size), size
        found = [*self._doubtful.values()]
        for settled in self._settled.in_order():
            pending = settled.pending
            if not left:
                break
            if round_.admits(pending):
                round_.picked(pending)
                left -= 1
                found += [pending] if pending.unread else []
        return found

    def pick(self, size: int, step: int | None) -> list[Pick]:
        """At most `size` groups that are ready for the step, first in order first; nothing is taken yet. It stops at
        one that is `to_read`."""
        if step is not None:
            self._reach(step)
        self._ask_withheld(step)
        round_, at = self._admission.round(size), 0
        picks: list[Pick] = []
        while len(picks) < size and at < self._settled.ready:
            settled = self._settled.nth(at)
            pending = settled.pending
            if not round_.admits(pending):
                at += 1
                continue
            if pending.unread:
                break
            decision = self._judged(settled, step) or self._decide(pending, step)
            if isinstance(decision, Ready):
                picks.append(Pick(pending, decision.verdict, self._final(pending, decision, step)))
                round_.picked(pending)
                at += 1
            else:
                self._act(pending, decision, step)
        return picks

    def take(self, picks: Sequence[Pick]) -> None:
        """The picked groups leave; records that come for them from now on are late, unless they are given back."""
        for pick in picks:
            pick.pending.drawn = True
            self._admission.took(pick.pending)
            self._unsettle(pick.pending.id)

    def begin_again(self) -> None:
        """Another pass begins: nothing is settled, noted or due."""
        self._settled, self._steps = SettledGroups(), []
        self._doubtful.clear()
        self._awaited.clear()
        self._admission = admission_of(self.dispatch.settings)

    def ended(self, groups: Iterable[PendingGroup]) -> None:
        """Groups that were taken are trained or dropped."""
        for pending in groups:
            self._admission.ended(pending)

    def give_back(self, groups: Sequence[PendingGroup], step: int | None) -> None:
        """Groups that were taken and not trained: judged again, with what came for them meanwhile."""
        for pending in groups:
            pending.drawn = False
            self._admission.gave_back(pending)
            self.settle(pending.partition, pending.id, step)

    def _ask_withheld(self, step: int | None) -> None:
        """Weights may have been published, so that it is worth asking again."""
        for pending in self._awaited.released(step):
            if self._awaited.lacks(pending):
                self._awaited.look_at_prefixes(pending, pending.aborted, step)
            else:
                self._judge(pending, step)

    def _reach(self, step: int) -> None:
        """Judge the groups on which the verdict may change at this step; prefixes that are spent by then matter while
        somebody would resume them."""
        while self._steps and self._steps[0][0] <= step:
            due, group = heappop(self._steps)
            settled = self._settled.get(group)
            if settled is not None and settled.due == due:
                self._judge(settled.pending, step)
        for pending in self._awaited.spent_by(step):
            if self._settled.get(pending.id) is None and self._awaited.lacks(pending):
                self._awaited.look_at_prefixes(pending, pending.aborted, step)

    def _judge(self, pending: PendingGroup, step: int | None) -> None:
        if pending.unread:
            self._look(pending, step)
            return
        self._act(pending, self._decide(pending, step), step)

    def _look(self, pending: PendingGroup, step: int | None) -> None:
        """Judge a group by its headers, as far as that goes."""
        self._unsettle(pending.id)
        pending.stirred = False
        most = self.dispatch.quorum(pending, self._awaited.now(pending)).keep
        at = self.dispatch.judged_for(step)
        verdict = None if at is None else ready_by_headers(pending, self.dispatch, at, most)
        if verdict is None:
            self._doubtful[pending.id] = pending
        else:
            self._place(pending, verdict, held=False, due=self.dispatch.rule_of(pending.env).next_change(verdict))

    def _judged(self, settled: SettledGroup, step: int | None) -> Ready | None:
        """What was decided already for that very step; a clock that went on since can't make a ready group wait."""
        known = settled.judged
        same = known is not None and (known.step, known.timelines) == (step, self._timelines)
        return known.decision if known is not None and same else None

    @property
    def _timelines(self) -> tuple[int | None, int]:
        history = self.dispatch.history
        return history.current_timeline, len(history.forks)

    def _decide(self, pending: PendingGroup, step: int | None) -> Decision:
        return self.dispatch.decide(pending, step, self._awaited.now(pending))

    def _act(self, pending: PendingGroup, decision: Decision, step: int | None) -> None:
        self._unsettle(pending.id)
        self._awaited.release(pending)
        pending.stirred = False
        self._admission.saw(pending)
        match decision:
            case Ready(verdict) | Held(verdict):
                rule = self.dispatch.rule_of(pending.env)
                at = self.dispatch.judged_for(step)
                changes = [] if at is None else [rule.next_change(verdict), verdict.held_until]
                due = min((change for change in changes if change is not None), default=None)
                judged = Judgement(decision, step, self._timelines) if isinstance(decision, Ready) else None
                self._place(pending, verdict, held=isinstance(decision, Held), due=due, judged=judged)
            case Reroll(withheld=True):
                self._awaited.withhold(pending)
            case Reroll(verdict, members):
                self._awaited.expire(pending, members, verdict.step)
                self._awaited.look_at_prefixes(pending, pending.aborted, step)
            case Drop():
                final = self._final(pending, decision, step)
                self.unwritten.dropped.append(final)
                self._admission.ended(pending)
                self.assemblies[pending.partition].end(pending.id)
            case Waiting():
                self._awaited.note_deadline(pending)
                self._awaited.look_at_prefixes(pending, pending.aborted, step)

    def _place(
        self,
        pending: PendingGroup,
        verdict: GroupVerdict,
        *,
        held: bool,
        due: int | None,
        judged: Judgement | None = None,
    ) -> None:
        fresh = sum(member.verdict is not Verdict.BASELINE for member in verdict.members)
        settled = SettledGroup(pending, self.order.key(pending, verdict), held, due, fresh, judged)
        self._settled.place(settled)
        if held:
            self._admission.aside(pending)
        if due is not None:
            heappush(self._steps, (due, pending.id))

    def _unsettle(self, group: str) -> None:
        self._doubtful.pop(group, None)
        self._settled.remove(group)

    def _final(self, pending: PendingGroup, decision: Ready | Drop, step: int | None) -> GroupFinal:
        reason = decision.reason if isinstance(decision, Drop) else None
        assembly = self.assemblies[pending.partition]
        return final_of(
            pending,
            decision.verdict,
            timeline=(self.own or self.dispatch.history).timeline,
            as_of=assembly.as_of(pending.id, assembly.next_offset),
            settings=self._digest,
            reason=reason,
            detail=decision.detail if isinstance(decision, Drop) else None,
            step=None if self.dispatch.steps else step,
            pass_number=pending.pass_number,
        )
