"""Which groups a step consumes: settled groups in order, judged again at the draw (design/trainer#draw).

Guarantees: pure; a group that expires or is dropped on the way becomes an unwritten event at once, with the step that
it was judged for; `pick` takes nothing away. Leaves out: payloads, writing and waiting.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from rolloutlog.contract.events.group_events import GroupFinal
from rolloutlog.contract.settings import Deadline
from rolloutlog.trainer.dispatch.decision import Decision, DispatchPolicy, Drop, Held, Ready, Reroll, Waiting
from rolloutlog.trainer.dispatch.finals import expired_of, final_of
from rolloutlog.trainer.dispatch.order import Key, Order
from rolloutlog.trainer.dispatch.unwritten_events import UnwrittenEvents
from rolloutlog.trainer.groups.assembly import Assembly
from rolloutlog.trainer.groups.pending_group import PendingGroup
from rolloutlog.trainer.staleness.verdicts import GroupVerdict


@dataclass(slots=True, frozen=True)
class Pick:
    """A group that is ready, and the verdict on the members that are kept."""

    pending: PendingGroup
    verdict: GroupVerdict
    final: GroupFinal


@dataclass(slots=True, frozen=True)
class _Settled:
    """A group that is ready, or held until a step. Its rank depends on what it sampled, not on the step."""

    pending: PendingGroup
    key: Key
    until: int


@dataclass(slots=True)
class Sampler:
    """The settled groups of all partitions. The caller writes `unwritten`, before it waits or ends."""

    assemblies: Mapping[int, Assembly]
    dispatch: DispatchPolicy
    order: Order
    unwritten: UnwrittenEvents = field(default_factory=UnwrittenEvents)
    _settled: dict[str, _Settled] = field(default_factory=dict[str, _Settled])
    _digest: str = field(init=False)

    def __post_init__(self) -> None:
        self._digest = self.dispatch.settings.digest  # asked once, since it is dear

    @property
    def settled(self) -> int:
        """Groups that are ready or held."""
        return len(self._settled)

    @property
    def has_deadlines(self) -> bool:
        """True where time alone may settle a group."""
        return isinstance(self.dispatch.settings.straggler, Deadline)

    def settle(self, partition: int, group: str, step: int | None) -> None:
        """Judge a group that changed."""
        pending = self.assemblies[partition].groups.get(group)
        if pending is not None and not pending.drawn:
            self._act(pending, self._decide(pending, step))

    def settle_overdue(self, step: int | None) -> None:
        """Judge the groups whose deadline the partition's time may have passed."""
        if self.has_deadlines:
            for assembly in self.assemblies.values():
                for group in [g for g, pending in assembly.groups.items() if not pending.drawn]:
                    self.settle(assembly.partition, group, step)

    def pick(self, size: int, step: int | None) -> list[Pick]:
        """At most `size` groups that are ready for the step, first in order first; nothing is taken yet."""
        picks: list[Pick] = []
        for settled in sorted(self._settled.values(), key=lambda settled: settled.key):
            if len(picks) == size:
                break
            if step is not None and settled.until > step:
                continue
            decision = self._decide(settled.pending, step)
            if isinstance(decision, Ready):
                picks.append(Pick(settled.pending, decision.verdict, self._final(settled.pending, decision)))
            else:
                self._act(settled.pending, decision)
        return picks

    def take(self, picks: Sequence[Pick]) -> None:
        """The picked groups leave; records that come for them from now on are late, unless they are given back."""
        for pick in picks:
            pick.pending.drawn = True
            del self._settled[pick.pending.id]

    def give_back(self, groups: Sequence[PendingGroup], step: int | None) -> None:
        """Groups that were taken and not trained: judged again, with what came for them meanwhile."""
        for pending in groups:
            pending.drawn = False
            self.settle(pending.partition, pending.id, step)

    def _decide(self, pending: PendingGroup, step: int | None) -> Decision:
        return self.dispatch.decide(pending, step, self.assemblies[pending.partition].time.now)

    def _act(self, pending: PendingGroup, decision: Decision) -> None:
        self._settled.pop(pending.id, None)
        match decision:
            case Ready(verdict) | Held(verdict):
                until = decision.until if isinstance(decision, Held) else 0
                self._settled[pending.id] = _Settled(pending, self.order.key(pending, verdict), until)
            case Reroll(verdict, members):
                for member in members:
                    event = expired_of(pending, member, step=verdict.step, timeline=self.dispatch.history.timeline)
                    self.unwritten.expired.append(event)
                    pending.expire(member.member, member.attempt)
            case Drop():
                final = self._final(pending, decision)
                self.unwritten.dropped.append(final)
                self.assemblies[pending.partition].end(pending.id, final.as_of)
            case Waiting():
                pass

    def _final(self, pending: PendingGroup, decision: Ready | Drop) -> GroupFinal:
        reason = decision.reason if isinstance(decision, Drop) else None
        as_of = self.assemblies[pending.partition].next_offset
        return final_of(
            pending,
            decision.verdict,
            timeline=self.dispatch.history.timeline,
            as_of=as_of,
            settings=self._digest,
            reason=reason,
        )
