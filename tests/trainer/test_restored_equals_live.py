"""A trainer that starts from watermarks goes on as the one before it would have, and as one that reads everything
(design/trainer#watermarks).

Random schedules of one partition: members arrive, are aborted, expire and are made again, groups are trained and
dropped, batches are drawn ahead, checkpoints are saved, trainers die at any moment and start, or resume.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rolloutlog.contract.events.event import Event, Outgoing, rollout_event
from rolloutlog.contract.events.group_events import GroupFinal
from rolloutlog.contract.events.policy_versions import SavedCheckpoint
from rolloutlog.contract.events.run import closed_steps, read_fact
from rolloutlog.contract.events.watermarks import Watermarks, newest_live
from rolloutlog.contract.policies import History, Policy
from rolloutlog.contract.record.rollout import Rollout
from rolloutlog.contract.settings import TrainerSettings
from rolloutlog.contract.topics import Topic
from rolloutlog.contract.vocabulary import EventType, Status
from rolloutlog.contract.wire.headers import Headers
from rolloutlog.trainer.dispatch.batch import Batch
from rolloutlog.trainer.dispatch.decision import DispatchPolicy
from rolloutlog.trainer.dispatch.lending import Lending
from rolloutlog.trainer.dispatch.order import OldestFirst
from rolloutlog.trainer.dispatch.sampler import Sampler
from rolloutlog.trainer.groups import ended_groups
from rolloutlog.trainer.groups.assembly import Assembly
from rolloutlog.trainer.groups.rollout_facts import fact_of
from rolloutlog.trainer.restarts.restoring import EndingsFold, known_event
from rolloutlog.trainer.restarts.sound_marks import RecalledChunks, SoundMarks, marks_of
from rolloutlog.trainer.steps.closing import closing_of
from rolloutlog.trainer.steps.step_events import step_events
from rolloutlog.trainer.steps.step_outcome import StepOutcome
from tests.trainer.desk import ended, rollout

GROUPS, SIZE = 12, 2
SETTINGS = TrainerSettings.model_validate(
    {"batch_groups": 1, "staleness": {"max_staleness": 2}, "overcommit": True, "min_survivors": 1}
)


@dataclass
class RunLog:
    """What is on the topics; a transaction's marker takes an offset of its own."""

    history: History = field(default_factory=History)
    rollouts: list[Event] = field(default_factory=list[Event])
    events: list[Event] = field(default_factory=list[Event])
    end: int = 0
    facts: dict[str, dict[str, object]] = field(default_factory=dict[str, "dict[str, object]"])
    checkpoints: list[SavedCheckpoint] = field(default_factory=list[SavedCheckpoint])

    def say(self, made: Rollout) -> None:
        offset = len(self.rollouts)
        out = rollout_event(made, source="/test", now=offset)
        self.rollouts.append(Event(out.topic, 0, offset, offset, out.key, Headers(out.headers), out.value))

    def write(self, records: Iterable[Outgoing]) -> dict[int, int]:
        """One transaction; where its last record on `group-events` lies."""
        last: dict[int, int] = {}
        for out in records:
            event = Event(out.topic, 0, self.end, 0, out.key, Headers(out.headers), out.value)
            if out.topic is Topic.GROUP_EVENTS:
                self.events.append(event)
                last, self.end = {0: self.end}, self.end + 1
            elif out.topic is Topic.RUN:
                name, body = read_fact(event)
                self.facts[name] = body
        self.end += bool(last)
        return last

    def marks(self, history: History | None = None) -> Watermarks | None:
        return newest_live([*self.checkpoints, *closed_steps(self.facts)], history or self.history)

    def finals(self) -> list[GroupFinal]:
        found = [known_event(event, 1) for event in self.events if event.headers.type != EventType.GROUPS_ENDED]
        return [one for one in found if isinstance(one, GroupFinal)]


class Trainer:
    """The pure parts of a stream, from these marks on."""

    def __init__(self, log: RunLog, marks: Watermarks | None, step: int | None = None) -> None:
        self.log = log
        parts = marks_of(marks, 1)
        at, there, chunks = parts[0].chunk, {event.offset: event for event in log.events}, RecalledChunks()
        while at is not None:
            at = chunks.recall(there[at])
        fold = EndingsFold(log.history, SoundMarks(marks, parts, {0: chunks}), {0: len(log.rollouts)})
        for event in log.events:
            if event.offset >= parts[0].events:
                fold.fold(event)
        fold.read({0: log.end})
        self.assembly = Assembly(0, fold.endings[0], next_offset=parts[0].low)
        self.sampler = Sampler({0: self.assembly}, DispatchPolicy(SETTINGS, log.history), OldestFirst())
        version = log.history.current.version if log.history.current else 0
        self.lending = Lending(self.sampler, max(fold.last_step, version) + 1)

    def read(self, count: int | None = None) -> None:
        first = self.assembly.next_offset
        for event in self.log.rollouts[first : None if count is None else first + count]:
            changed = None
            if self.assembly.wants(event):
                changed = self.assembly.fold(event, fact_of(event, 1))
            else:
                self.assembly.pass_by(event)
            for pending in [*self.assembly.close_void(), *([changed] if changed else [])]:
                self.sampler.settle(0, pending.id, self.lending.step)

    def draw(self) -> Batch | None:
        picks = self.sampler.pick(1, self.lending.step)
        return self.lending.draw(picks, short=False) if picks else None

    def notes(self, batch: Batch | None = None, *, checkpoint: bool = False, answered: bool = True) -> None:
        """Write what there is, and the batch with it; an answer may be lost."""
        log, unwritten = self.log, self.sampler.unwritten.take()
        finals = [*unwritten.dropped, *(group.final for group in batch or ())]
        step = batch.step if batch else None
        timeline = log.history.timeline
        closing = closing_of({0: self.assembly}, finals, unwritten.expired, timeline=timeline, step=step)
        if batch is None:
            records = unwritten.events(0)
        else:
            records = step_events(batch, unwritten, None, closing, StepOutcome(), run="r", now=0)
        last = log.write(records)
        closing.committed({0: self.assembly}, last if answered else {})
        marks = closing.watermarks
        if checkpoint and marks is not None:
            log.checkpoints.append(SavedCheckpoint(**marks.model_dump(), uri="file:///c"))

    def tell(self, batch: Batch, *, checkpoint: bool, answered: bool) -> None:
        self.lending.begin(batch)
        self.lending.ensure_turn(batch)
        self.notes(batch, checkpoint=checkpoint, answered=answered)
        self.lending.told(batch)
        self.log.history.publish(Policy(self.log.history.timeline, batch.step or 0))


@dataclass
class Schedule:
    log: RunLog = field(default_factory=RunLog)
    attempts: dict[tuple[int, int], int] = field(default_factory=dict[tuple[int, int], int])
    ahead: Batch | None = None

    def begin(self) -> None:
        self.log.history.start(0, None, 0)
        self.log.history.publish(Policy(0, 0))
        self.trainer = Trainer(self.log, None)

    def arrive(self, number: int, member: int, *, aborted: bool = False) -> None:
        attempt = self.attempts.get((number, member), 0) + 1
        self.attempts[number, member] = attempt
        current = self.log.history.current or Policy(0, 0)
        made = rollout(
            member, 0, group=f"g{number}", size=SIZE, attempt=attempt, reward=1.0 if number % 3 == 0 else None
        )
        made.trajectory.segments[:, 0], made.trajectory.segments[:, 1] = current.timeline, current.version
        self.log.say(ended(made, Status.ABORTED) if aborted else made)

    def whole(self, number: int) -> None:
        for member in range(SIZE):
            self.arrive(number, member)

    def step(self, *, checkpoint: bool = False, ahead: bool = False, answered: bool = True) -> None:
        batch = self.ahead or self.trainer.draw()
        self.ahead = self.trainer.draw() if ahead and batch else None
        if ahead:  # meanwhile others are read, and judged for a later step
            self.whole(3 * (len(self.log.rollouts) % 4))
            self.trainer.read()
        if batch is not None:
            self.trainer.tell(batch, checkpoint=checkpoint, answered=answered)
            self.check_marks()

    def check_marks(self) -> None:
        """Nothing below the low watermark is unresolved, whatever is void for those marks."""
        marks = self.log.marks()
        assert marks is not None
        then = History(dict(self.log.history.forks))
        then.start(then.next_timeline(), marks.timeline, marks.step)
        done = {final.group for final in self.log.finals() if then.is_live(final.timeline, final.step)}
        below = {event.headers.group for event in self.log.rollouts[: marks.partitions[0].low]}
        assert below <= done

    def start(self) -> None:
        """The trainer dies, and what it hadn't written with it."""
        self.ahead = None
        self.trainer = Trainer(self.log, self.log.marks())
        self.compare()

    def resume(self, which: int) -> None:
        live = [one for one in self.log.checkpoints if self.log.history.is_live(one.timeline, one.step)]
        if not live:
            return
        saved, history = live[which % len(live)], self.log.history
        history.start(history.next_timeline(), saved.timeline, saved.step)
        history.publish(Policy(history.timeline, saved.step))
        at = saved.model_copy(update={"timeline": history.timeline})
        self.log.facts[f"step/{history.timeline}"] = {
            "timeline": history.timeline, "step": at.step, "partitions": [one.model_dump() for one in at.partitions]
        }  # fmt: skip
        self.start()

    def compare(self) -> None:
        """From the marks as from the beginning: the same groups are open, and the same are drawn."""
        found = []
        for marks in (self.log.marks(), None):
            trainer = Trainer(self.log, marks)
            trainer.lending.step = self.trainer.lending.step
            trainer.read()
            drawn = [trainer.draw() for _ in range(GROUPS)]
            named = [(batch.step, [(g.id, g.final.masks) for g in batch]) for batch in drawn if batch]
            ended = [name for name in (f"g{i}" for i in range(GROUPS)) if name in trainer.assembly.endings]
            opened = {name: pending.group.members for name, pending in trainer.assembly.groups.items()}
            found.append((named, ended, sorted(opened)))
        assert found[0] == found[1]

    def check(self) -> None:
        """No group is trained, or dropped, twice on the path that counts."""
        history = self.log.history
        live = [final.group for final in self.log.finals() if history.is_live(final.timeline, final.step)]
        assert len(live) == len(set(live))


MOVES = st.one_of(
    st.tuples(st.just("arrive"), st.integers(0, GROUPS - 1), st.integers(0, SIZE - 1), st.booleans()),
    st.tuples(st.just("whole"), st.integers(0, GROUPS - 1)),
    st.tuples(st.just("whole"), st.integers(0, GROUPS - 1)),
    st.tuples(st.just("whole"), st.integers(0, GROUPS - 1)),
    st.tuples(st.just("read"), st.integers(1, 6)),
    st.tuples(st.just("step"), st.booleans(), st.booleans(), st.booleans()),
    st.tuples(st.just("step"), st.booleans(), st.booleans(), st.booleans()),
    st.tuples(st.just("notes")),
    st.tuples(st.just("start")),
    st.tuples(st.just("resume"), st.integers(0, 3)),
)


@settings(deadline=None)
@example(
    [
        *[("whole", number) for number in (0, 0, 7, 3, 9)],
        ("step", False, True, False),
        ("whole", 2),
        ("step", False, False, False),
        ("whole", 1),
        ("start",),
        ("step", False, False, False),
    ],
    3,
)  # an answer was lost, and a chunk that nobody names lies there
@given(st.lists(MOVES, min_size=15, max_size=45), st.integers(2, 4))
def test_a_trainer_from_watermarks_goes_on_as_one_that_reads_everything(
    moves: list[tuple[object, ...]], chunk: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ended_groups, "CHUNK", chunk)
        schedule = Schedule()
        schedule.begin()
        for name, *rest in moves:
            match name, rest:
                case "arrive", [int(number), int(member), bool(aborted)]:
                    schedule.arrive(number, member, aborted=aborted)
                case "whole", [int(number)]:
                    schedule.whole(number)
                case "read", [int(count)]:
                    schedule.trainer.read(count)
                case "step", [bool(checkpoint), bool(ahead), bool(answered)]:
                    schedule.trainer.read()
                    schedule.step(checkpoint=checkpoint, ahead=ahead, answered=answered)
                case "notes", _:
                    schedule.trainer.notes()
                case "start", _:
                    schedule.start()
                case _, [int(which)]:
                    schedule.resume(which)
                case _:
                    raise AssertionError(name)
            schedule.check()
        schedule.start()
