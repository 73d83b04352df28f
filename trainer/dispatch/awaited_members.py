"""The members that groups wait for: until when, and who must be made again rather than resumed (design/trainer#doomed).

Guarantees: pure; an aborted member whose prefix is spent expires at once, or at the step at which it is; while whatever
anybody samples would be too old as well, its group is withheld: nobody is asked before newer weights are published.
Leaves out: judging the members that are there (`sampler`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from heapq import heappop, heappush

from rolloutlog.trainer.dispatch.deadlines import Deadlines
from rolloutlog.trainer.dispatch.decision import DispatchPolicy
from rolloutlog.trainer.dispatch.finals import expired_of
from rolloutlog.trainer.dispatch.unwritten_events import UnwrittenEvents
from rolloutlog.trainer.groups.assembly import Assembly
from rolloutlog.trainer.groups.pending_group import PendingGroup
from rolloutlog.trainer.staleness.verdicts import MemberVerdict


@dataclass(slots=True)
class AwaitedMembers:
    """Of all groups that lack some. The caller says which groups are settled."""

    assemblies: Mapping[int, Assembly]
    dispatch: DispatchPolicy
    unwritten: UnwrittenEvents
    _deadlines: Deadlines = field(default_factory=Deadlines)
    _steps: list[tuple[int, str]] = field(default_factory=list[tuple[int, str]])
    _prefixes: dict[str, tuple[int, PendingGroup]] = field(default_factory=dict[str, tuple[int, PendingGroup]])
    _withheld: dict[str, PendingGroup] = field(default_factory=dict[str, PendingGroup])

    @property
    def has_deadlines(self) -> bool:
        """True where time alone may settle a group."""
        return bool(self._deadlines)

    @property
    def withheld(self) -> int:
        """Groups that lack members whom nobody is asked for before newer weights are published."""
        return len(self._withheld)

    def clear(self) -> None:
        """Nothing is awaited."""
        self._deadlines, self._steps = Deadlines(), []
        self._prefixes.clear()
        self._withheld.clear()

    def lacks(self, pending: PendingGroup) -> bool:
        """True while members are awaited; a deadline is noted."""
        if self.dispatch.required(pending, self.now(pending)) is not None:
            return False
        self.note_deadline(pending)
        return True

    def note_deadline(self, pending: PendingGroup) -> None:
        """Look at the group when its partition's time has come that far."""
        self._deadlines.note(pending, self.dispatch.due(pending, self.now(pending)))

    def overdue(self) -> Iterator[tuple[int, str]]:
        """The groups whose deadline the partition's time has passed, with their partition."""
        for partition in self._deadlines.partitions:
            for group in self._deadlines.passed(partition, self.assemblies[partition].time.now):
                yield partition, group

    def now(self, pending: PendingGroup) -> int:
        """The time of its partition."""
        return self.assemblies[pending.partition].time.now

    def look_at_prefixes(self, pending: PendingGroup, members: Collection[int], step: int | None) -> None:
        """Of a group that waits, say which aborted members must not be resumed, and note when others mustn't."""
        if not members or step is None or not self.dispatch.askable(pending, self.now(pending)):
            return
        spent, due = self.dispatch.spent(pending, members, step)
        if spent and self.dispatch.doomed(step, pending.env):
            self._withheld[pending.id] = pending
        else:
            self.expire(pending, spent, step + 1)
        if due is not None and due < self._prefixes.get(pending.id, (due + 1, pending))[0]:
            self._prefixes[pending.id] = (due, pending)
            heappush(self._steps, (due, pending.id))

    def spent_by(self, step: int) -> Iterator[PendingGroup]:
        """The groups of which prefixes are spent by then, unless more was noted since."""
        while self._steps and self._steps[0][0] <= step:
            due, group = heappop(self._steps)
            noted, pending = self._prefixes.get(group, (None, None))
            if pending is not None and noted == due:
                del self._prefixes[group]
                if self._is_open(pending):
                    yield pending

    def expire(self, pending: PendingGroup, members: Iterable[MemberVerdict], step: int) -> None:
        """Members that must be made again."""
        for member in members:
            event = expired_of(pending, member, step=step, timeline=self.dispatch.history.timeline)
            self.unwritten.expired.append(event)
            pending.expire(member.member, member.attempt, self.now(pending))
        self.note_deadline(pending)

    def withhold(self, pending: PendingGroup) -> None:
        """Ask nobody for its members before newer weights are published."""
        self._withheld[pending.id] = pending

    def release(self, pending: PendingGroup) -> None:
        """It is decided anew."""
        self._withheld.pop(pending.id, None)

    def released(self, step: int | None) -> Iterator[PendingGroup]:
        """Weights may have been published: the groups for whose members it is worth asking again."""
        for pending in [p for p in self._withheld.values() if not self.dispatch.doomed(step, p.env)]:
            del self._withheld[pending.id]
            if self._is_open(pending):
                yield pending

    def _is_open(self, pending: PendingGroup) -> bool:
        return not pending.drawn and self.assemblies[pending.partition].groups.get(pending.id) is pending
