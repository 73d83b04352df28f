"""The stream's pure parts against a plain oracle, over any schedule: records of any attempt, with and without a reward,
late rewards, resumed prefixes, duplicates, cancellations, expiries, re-rolls, draws ahead, what goes back, tellings
that fail, crashes and starts (design/trainer#lending).

The oracle keeps the log as a list and knows nothing of indexes: at each moment it folds a group anew, by a few
sentences that stand here in plain Python. Leaves out: payloads, the broker, and settings but the default ones.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import product
from typing import Any, NamedTuple

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from rolloutlog.contract.events.group_events import GroupFinal, MemberExpired
from rolloutlog.contract.record.rollout import Rollout
from rolloutlog.contract.settings import TrainerSettings
from rolloutlog.contract.vocabulary import DropReason, SeedKind, Status
from rolloutlog.trainer.dispatch.batch import Batch
from rolloutlog.trainer.dispatch.decision import DispatchPolicy
from rolloutlog.trainer.dispatch.lending import Lending
from rolloutlog.trainer.dispatch.order import OldestFirst
from rolloutlog.trainer.dispatch.sampler import Sampler
from rolloutlog.trainer.dispatch.unwritten_events import UnwrittenEvents
from rolloutlog.trainer.groups.assembly import Assembly
from rolloutlog.trainer.groups.ended_groups import EndedGroups
from rolloutlog.trainer.steps.closing import closing_of
from tests.trainer.desk import Desk, ended, live, pending_reward, rollout

GROUPS, SIZE = [*"abcdefghijklmnop"], 3
STALE_FROM = 2
"""(max_staleness 1 + 1) * W 1."""
FIRST = 5
"""The first step, so that there are policies that are too old from the beginning."""


class Late(NamedTuple):
    """A reward that comes after its record, or before."""

    made: Rollout
    reward: float


Fact = Rollout | Late | int
"""A record, a late reward, or that a member was cancelled."""


class Stands(NamedTuple):
    """How a member stands, by which attempt, and its oldest and newest version."""

    status: str
    attempt: int
    oldest: int = 0
    newest: int = 0


@dataclass
class Oracle:
    """The log: what was said of each group, in order; and what the trainer has said."""

    said: dict[str, list[Fact]] = field(default_factory=dict)
    first: dict[str, int] = field(default_factory=dict)
    expired: dict[tuple[str, int], int] = field(default_factory=dict)
    dropped: set[str] = field(default_factory=set)
    trained: dict[str, int] = field(default_factory=dict)

    def member(self, group: str, index: int) -> Stands:
        """The highest attempt stands, unless it expired, the first record of it counts; a cancelled member is resolved
        unless it completes all the same; one that completed without its reward waits for it."""
        attempts: dict[int, Rollout] = {}
        for made in self.said.get(group, []):
            if isinstance(made, Rollout) and made.slot.member == index:
                attempts.setdefault(made.slot.attempt, made)
        attempt = max(attempts, default=0)
        stands = Stands("open", attempt)
        if attempt > self.expired.get((group, index), 0):
            versions = versions_of(made := attempts[attempt])
            stands = Stands(str(made.status), attempt, min(versions), max(versions))
            if stands.status == "completed" and not self.rewarded(group, made):
                stands = stands._replace(status="unrewarded")
        if index in self.said.get(group, []) and stands.status in ("open", "aborted"):
            stands = stands._replace(status="cancelled")
        return stands

    def rewarded(self, group: str, made: Rollout) -> bool:
        """True if the record says its reward, or somebody else did, of that attempt."""
        late = [fact.made.slot for fact in self.said[group] if isinstance(fact, Late)]
        return made.trajectory.reward is not None or any(
            (slot.member, slot.attempt) == (made.slot.member, made.slot.attempt) for slot in late
        )

    def ready(self, group: str, step: int) -> dict[int, tuple[int, int]] | None:
        """Attempt and version of the members to train, where all are resolved, at least two are usable, none is stale
        that can be asked for again, and all of their policies are in the past."""
        if group not in self.said or not self.resolved(group):
            return None
        if any(self.stale(group, index, step) and index not in self.said[group] for index in range(SIZE)):
            return None
        kept = self.usable(group, step)
        past = all(self.member(group, index).newest < step for index in kept)
        return kept if len(kept) >= 2 and past else None

    def resolved(self, group: str) -> bool:
        waiting = ("open", "aborted", "unrewarded")
        return all(self.member(group, index).status not in waiting for index in range(SIZE))

    def stale(self, group: str, index: int, step: int) -> bool:
        stands = self.member(group, index)
        return stands.status == "completed" and step - stands.oldest - 1 >= STALE_FROM

    def usable(self, group: str, step: int) -> dict[int, tuple[int, int]]:
        """Completed and not stale: who was cancelled after he completed is never asked for again, and just leaves."""
        members = {index: self.member(group, index) for index in range(SIZE)}
        return {
            index: (stands.attempt, stands.oldest)
            for index, stands in members.items()
            if stands.status == "completed" and not self.stale(group, index, step)
        }

    def over(self, group: str) -> bool:
        return group in self.trained or group in self.dropped


class StreamModel(RuleBasedStateMachine):
    """One partition, batches of any size."""

    def __init__(self) -> None:
        super().__init__()
        self.oracle = Oracle()
        self.facts: list[Any] = []
        self.written = UnwrittenEvents()
        self.finals: list[GroupFinal] = []
        self.told_steps: list[int] = []
        self.tellings: list[Batch] = []
        self.start()

    # what happens

    @rule(
        group=st.sampled_from(GROUPS), member=st.integers(0, SIZE - 1), attempt=st.integers(1, 3),
        age=st.integers(-1, 3), rewarded=st.booleans(),
        status=st.sampled_from([Status.COMPLETED] * 4 + [Status.ABORTED, Status.FAILED]),
    )  # fmt: skip
    def arrive(self, group: str, member: int, attempt: int, age: int, status: Status, rewarded: bool) -> None:
        made = rollout(member, self.version(age), group=group, size=SIZE, attempt=attempt)
        made = made if rewarded else pending_reward(made)
        self.say(group, made if status is Status.COMPLETED else ended(made, status))

    @rule(
        group=st.sampled_from(GROUPS), member=st.integers(0, SIZE - 1), attempt=st.integers(1, 3),
        reward=st.sampled_from([0.0, 2.5]),
    )  # fmt: skip
    def annotate(self, group: str, member: int, attempt: int, reward: float) -> None:
        """A reward of any attempt, whether it is there or not."""
        self.say(group, Late(rollout(member, 0, group=group, size=SIZE, attempt=attempt), reward))

    @rule(groups=st.sets(st.sampled_from(GROUPS), min_size=1), age=st.integers(1, 3), now=st.integers(-1, 1))
    def abort_and_resume(self, groups: set[str], age: int, now: int) -> None:
        """What is awaited comes as a prefix, or is one already, and the next attempt goes on from it."""
        for group, member in product(sorted(groups), range(SIZE)):
            if self.oracle.over(group):
                continue
            if self.oracle.member(group, member).status == "open":
                attempt = self.next_attempt(group, member)
                made = rollout(member, self.version(age), group=group, size=SIZE, attempt=attempt)
                self.say(group, ended(made, Status.ABORTED))
            stands = self.oracle.member(group, member)
            if stands.status == "aborted":
                versions = [stands.oldest] * 2 + [max(stands.newest, self.version(now))] * 2
                attempt = stands.attempt + 1
                self.say(
                    group,
                    rollout(member, versions, group=group, size=SIZE, attempt=attempt, seed_kind=SeedKind.RESUME),
                )

    @rule(groups=st.sets(st.sampled_from(GROUPS), min_size=1), age=st.integers(0, 1))
    def arrive_whole(self, groups: set[str], age: int) -> None:
        """What is asked for comes, so that schedules reach the draw."""
        for group, member in product(sorted(groups), range(SIZE)):
            stands = self.oracle.member(group, member)
            made = rollout(
                member, self.version(age), group=group, size=SIZE, attempt=self.next_attempt(group, member)
            )  # fmt: skip
            if stands.status in ("open", "aborted") and not self.oracle.over(group):
                self.say(group, made)
            elif stands.status == "unrewarded" and not self.oracle.over(group):
                made = rollout(member, 0, group=group, size=SIZE, attempt=stands.attempt)
                self.say(group, Late(made, 1.0))

    @precondition(lambda self: self.facts)
    @rule(data=st.data())
    def duplicate(self, data: st.DataObject) -> None:
        group, fact = data.draw(st.sampled_from(self.facts))
        self.say(group, fact)

    @rule(groups=st.sets(st.sampled_from(GROUPS), min_size=1, max_size=3), age=st.integers(STALE_FROM, 3))
    def expire(self, groups: set[str], age: int) -> None:
        """What is asked for comes, too old for the step that is next."""
        self.arrive_whole(groups, age)
        self.sampler.pick(99, self.lending.step or 0)  # what is whole is judged for a later step when it is drawn
        self.hear()
        self.nobody_stale_is_left(groups)

    @rule(
        groups=st.sets(st.sampled_from(GROUPS), min_size=1, max_size=3),
        age=st.integers(STALE_FROM, 3),
        crash=st.booleans(),
    )
    def re_roll(self, groups: set[str], age: int, crash: bool) -> None:
        """What expired is made again and drawn, also by a trainer that only heard of it from the log."""
        self.expire(groups, age)
        if crash:
            self.write_notes()
            self.start()
        self.arrive_whole(groups, 0)
        self.draw(1, ahead=False)

    @rule(group=st.sampled_from(GROUPS), member=st.integers(0, SIZE - 1))
    def cancel(self, group: str, member: int) -> None:
        self.say(group, member)

    @rule(groups=st.sets(st.sampled_from(GROUPS), min_size=2), size=st.integers(1, 2), count=st.integers(1, 3))
    def draw_what_comes(self, groups: set[str], size: int, count: int) -> None:
        self.arrive_whole(groups, 0)
        for number in range(count):
            self.draw(size, ahead=number > 0)

    @precondition(lambda self: self.lending.lent)
    @rule()
    def train(self) -> None:
        """The oldest is told, as a loop does."""
        oldest = next(iter(self.lending.lent))
        if not any(oldest is batch for batch in self.tellings):
            self.begin_with(oldest)
        self.tellings.sort(key=lambda batch: batch is not oldest)
        self.tell(fails=False)

    @rule(size=st.integers(1, 3), ahead=st.booleans())
    def draw(self, size: int, ahead: bool) -> None:
        """What the oracle holds for ready is picked, all of it, and no more; the first of it is taken."""
        step = self.lending.step or 0
        everything = self.sampler.pick(99, step)
        self.hear()
        ready = {group: kept for group in GROUPS if (kept := self.ready(group)) is not None}
        found = {pick.pending.id for pick in everything}
        self.nobody_stale_is_left(GROUPS)
        assert found == ready.keys(), (step, found, ready)
        ages = [(min(v for _, v in ready[p.pending.id].values()), self.oracle.first[p.pending.id]) for p in everything]
        assert ages == sorted(ages), "oldest first, then as they came"
        picks = self.sampler.pick(size, step)
        assert [pick.pending.id for pick in picks] == [pick.pending.id for pick in everything][:size]
        if picks:
            batch = self.lending.draw(picks, short=len(picks) < size)
            assert batch.step == step
            for group in batch:
                assert {m.member: m.attempt for m in group.members} == {i: a for i, (a, _) in ready[group.id].items()}
            if not ahead:
                assert self.lending.hand_out(batch)

    @rule()
    def hand_out(self) -> None:
        for batch in self.lending.lent:
            self.lending.hand_out(batch)

    @rule()
    def go_on(self) -> None:
        """All that nobody began to tell goes back, from the first on."""
        self.lending.go_on()
        self.tellings = [batch for batch in self.tellings if batch in self.lending.lent]
        self.hear()

    @precondition(lambda self: self.lending.lent)
    @rule(data=st.data())
    def begin(self, data: st.DataObject) -> None:
        batch = data.draw(st.sampled_from([*self.lending.lent]))
        if not any(batch is other for other in self.tellings):
            self.begin_with(batch)

    def begin_with(self, batch: Batch) -> None:
        self.lending.begin(batch)
        self.tellings.append(batch)

    @precondition(lambda self: self.tellings)
    @rule(fails=st.booleans())
    def tell(self, fails: bool) -> None:
        batch = self.tellings.pop(0)
        try:
            self.lending.ensure_turn(batch)
        except ValueError:
            assert self.lending.lent[:1] != [batch]
            self.lending.failed(batch)
            return
        if fails:
            self.lending.failed(batch)
            return
        self.write(batch)
        self.lending.told(batch)
        self.told_steps.append(batch.step or 0)
        for group in batch:
            assert not self.oracle.over(group.id), "trained twice"
            self.oracle.trained[group.id] = batch.step or 0

    @rule()
    def write_notes(self) -> None:
        self.write(None)

    @rule()
    def start(self) -> None:
        """A new process reads the log to its end before it judges; what wasn't written is judged anew, what was lent is
        lent no more."""
        endings = EndedGroups()
        for place, final in enumerate(self.finals):
            endings.finish(final.group, final.step, place, first=0)
        for one in self.written.expired:
            endings.expire(one.group, one.member, one.attempt, 0)
        endings.close(self.last_told)
        self.desk = Desk(Assembly(0, endings))
        dispatch = DispatchPolicy(
            TrainerSettings.model_validate(
                {"staleness": {"on_expire": {"type": "reroll-members", "tries": 1000}}, "drop_zero_variance": False}
            ),
            live(60),
        )
        self.sampler = Sampler({0: self.desk.assembly}, dispatch, OldestFirst())
        self.lending = Lending(self.sampler, self.last_told + 1)
        self.tellings = []
        self.oracle.expired, self.oracle.dropped = {}, {f.group for f in self.finals if f.reason is not None}
        self.seen: set[int] = set()
        for one in self.written.expired:
            key = (one.group, one.member)
            self.oracle.expired[key] = max(self.oracle.expired.get(key, 0), one.attempt)
        for group, fact in self.facts:
            self.put(group, fact)
        for group in GROUPS:
            self.sampler.settle(0, group, self.lending.step)
        self.hear()

    # how it is said

    @property
    def last_told(self) -> int:
        return FIRST - 1 + len(self.told_steps)

    def version(self, age: int) -> int:
        return max(0, (self.lending.step or 1) - 1 - age)

    def next_attempt(self, group: str, member: int) -> int:
        return max(self.oracle.member(group, member).attempt, self.oracle.expired.get((group, member), 0)) + 1

    def say(self, group: str, fact: Fact) -> None:
        self.facts.append((group, fact))
        if not self.oracle.over(group):
            self.oracle.said.setdefault(group, []).append(fact)
            self.oracle.first.setdefault(group, len(self.facts))
        self.fold(group, fact)
        self.hear()

    def fold(self, group: str, fact: Fact) -> None:
        self.put(group, fact)
        self.sampler.settle(0, group, self.lending.step)

    def put(self, group: str, fact: Fact) -> None:
        match fact:
            case int():
                self.desk.cancel([fact], group=group, size=SIZE)
            case Late(made, reward):
                self.desk.annotate(made, {"reward": reward})
            case _:
                self.desk.say(fact)

    def ready(self, group: str) -> dict[int, tuple[int, int]] | None:
        lent = {one.id for batch in self.lending.lent for one in batch}
        if self.oracle.over(group) or group in lent:
            return None
        return self.oracle.ready(group, self.lending.step or 0)

    def hear(self) -> None:
        """Take in what the trainer notes, once each, and see that it is so."""
        for one in self.sampler.unwritten.expired:
            if id(one) not in self.seen:
                self.seen.add(id(one))
                self.check_expired(one)
                self.oracle.expired[one.group, one.member] = one.attempt
        for final in self.sampler.unwritten.dropped:
            if id(final) not in self.seen:
                self.seen.add(id(final))
                self.check_dropped(final)
                self.oracle.dropped.add(final.group)

    def nobody_stale_is_left(self, groups: Iterable[str]) -> None:
        """Of groups that wait for nobody: who is too old was asked for again, unless he was cancelled."""
        lent, step = {one.id for batch in self.lending.lent for one in batch}, self.lending.step or 0
        for group in groups:
            if group not in lent and not self.oracle.over(group) and self.oracle.resolved(group):
                stale = [index for index in range(SIZE) if self.oracle.stale(group, index, step)]
                assert all(index in self.oracle.said[group] for index in stale), (group, stale)

    def check_expired(self, one: MemberExpired) -> None:
        stands = self.oracle.member(one.group, one.member)
        assert (stands.status in ("completed", "aborted"), stands.attempt) == (True, one.attempt)
        assert one.step - stands.oldest - 1 >= STALE_FROM

    def check_dropped(self, final: GroupFinal) -> None:
        stale = any(self.oracle.stale(final.group, index, final.step) for index in range(SIZE))
        assert final.reason is (DropReason.EXPIRED if stale else DropReason.SURVIVORS)
        assert len(self.oracle.usable(final.group, final.step)) < 2
        assert self.oracle.resolved(final.group)

    def write(self, batch: Batch | None) -> None:
        """One transaction: the notes, and with a batch the step."""
        notes = self.sampler.unwritten.take()
        finals = [*notes.dropped, *([group.final for group in batch] if batch else [])]
        self.written.expired += notes.expired
        self.finals += finals
        step = batch.step if batch else None
        assemblies = {0: self.desk.assembly}
        closing = closing_of(assemblies, finals, notes.expired, timeline=0, step=step)
        closing.committed(assemblies, {0: len(self.finals)})

    # what always holds

    @invariant()
    def steps_are_told_in_order_and_none_is_skipped(self) -> None:
        assert self.told_steps == [*range(FIRST, self.last_told + 1)]
        steps = [batch.step for batch in self.lending.lent]
        first = self.last_told + 1
        assert steps == [*range(first, first + len(steps))]
        assert self.lending.step == first + len(steps)

    @invariant()
    def every_group_ends_once(self) -> None:
        assert max(Counter(final.group for final in self.finals).values(), default=0) <= 1


def versions_of(made: Rollout) -> list[int]:
    """Of the segments, which are (timeline, version, length)."""
    return [int(segment[1]) for segment in made.trajectory.segments]


TestStreamModel = StreamModel.TestCase
TestStreamModel.settings = settings(stateful_step_count=30)
