"""How a trainer starts: on which timeline, at which step, and from which watermarks (design/trainer#timelines).

Guarantees: a start that only goes on needs nothing but the log; a resume goes back to a checkpoint or a policy that is
there, and is refused for another run's or an unknown one. Leaves out: reading the groups (`restoring`), and files.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from rolloutlog.contract.errors import NotFound, RecordsDeleted, RunMismatch, SettingsError
from rolloutlog.contract.events.event import Outgoing
from rolloutlog.contract.events.policy_versions import PublishedPolicy, SavedCheckpoint
from rolloutlog.contract.events.run import STEP, closed_steps, trainer_recorded
from rolloutlog.contract.events.watermarks import newest_live
from rolloutlog.contract.policies import History, Policy
from rolloutlog.contract.settings import Settings
from rolloutlog.kafka.client.connection import Connection
from rolloutlog.kafka.read.ends import Ends, Place
from rolloutlog.kafka.read.policy_log import PolicyLog
from rolloutlog.kafka.run_record import RunRecord
from rolloutlog.trainer.dispatch.unwritten_events import SOURCE
from rolloutlog.trainer.restarts.sound_marks import LOST_HINT, SoundMarks, sound_marks
from rolloutlog.trainer.steps.step_events import first_events, resumed_events

log = logging.getLogger(__name__)

CHECKPOINT = "checkpoint"


class CheckpointChoice(Protocol):
    """Who knows which checkpoints can be gone back to: `rolloutlog.trainer.loop.checkpoint_folder`, or a user's own."""

    def choose(self, run: str, known: Collection[SavedCheckpoint], history: History) -> Policy | None:
        """One of those that the log knows; None where there is none. What it raises ends the start, before anything is
        written."""
        ...

    def weights(self, run: str, saved: SavedCheckpoint, policy: Policy) -> tuple[str, str | None]:
        """Where the weights of a checkpoint lie whose step published none, and their digest; workers get them as
        `policy`."""
        ...


@dataclass(slots=True, frozen=True)
class Start:
    """How a stream starts. `step`: the first train step, above the last on the log (None: the one after it);
    `offsets` to read from.

    `payloads` False keeps no payload. `timeline` False starts none, for who publishes no weights; else a first start
    does, unless the policies are imported ones. `weights` is where version 0 lies, `digest` theirs; with `resume` they
    are those of the policy that it begins with, if they lie elsewhere than was said then.

    `resume` goes back: to the newest checkpoint that is live ("checkpoint"), to the one of a `state_dict`, or to a
    policy that was published. A new timeline begins with its weights, and the steps after it become void. A start that
    only goes on after a stop or a crash needs none. Who is to choose where there is no checkpoint yet goes back to the
    newest policy, whose weights are the newest state that there is; without one it is a first start, and for that alone
    is `weights` then.

    `latest` begins at the end that `rollouts` and `seeds` have now: groups that are open there are dropped(skipped).
    """

    step: int | None = None
    payloads: bool = True
    timeline: bool = True
    weights: str | None = None
    digest: str | None = None
    resume: Policy | Literal["checkpoint"] | Mapping[str, Any] | CheckpointChoice | None = None
    offsets: Mapping[int, int] | None = None
    latest: bool = False

    def __post_init__(self) -> None:
        """Raises SettingsError."""
        if self.latest and self.offsets is not None:
            raise SettingsError("a start is at the latest end or at `offsets`, not both", "give one of the two")


@dataclass(slots=True, frozen=True)
class StartPoint:
    """From where a stream goes on: the `marks`, and what to write `first`; `forked` is the history of a resume once
    that is written, `checkpoint` the one that it goes back to, if any: who asks for a policy gets its weights alone.
    `told`: trainers have closed steps here, live or not."""

    marks: SoundMarks
    first: list[Outgoing]
    forked: History | None = None
    checkpoint: SavedCheckpoint | None = None
    told: bool = False


async def start_point(
    connection: Connection,
    start: Start,
    settings: Settings,
    run: RunRecord,
    policies: PolicyLog,
    rollouts: Mapping[Place, Ends],
    now: int,
) -> StartPoint:
    """What a start or a resume goes on from, and what it says: the settings that it judges by, unless they are the last
    on the log, and a timeline where there is none, or one is resumed from.

    `rollouts` has the ends of that topic. Raises UnknownPolicy, NotFound, RunMismatch, RecordsDeleted.
    """
    history, first = policies.history, list[Outgoing]()
    if run.trainer != settings.trainer.recorded():
        first.append(trainer_recorded(settings.trainer, source=SOURCE, now=now))
    closed = closed_steps(run.facts)
    known = [*policies.checkpoints.values(), *closed]
    whole = len(closed) == sum(name.startswith(STEP) for name in run.facts)  # else some can't be read
    if start.resume is not None and (policy := await _policy_of(start.resume, settings.run_id, policies)) is not None:
        weights = await _weights_of(policy, start, settings.run_id, policies)
        there = forked(history, policy)
        marks = await sound_marks(connection, known, there, run.partitions, rollouts, whole=whole, latest=start.latest)
        first += resumed_events(history, weights, marks.said, run=settings.run_id, now=now)
        is_policy = isinstance(start.resume, Policy) and policy in history.published
        return StartPoint(
            marks, first, there, None if is_policy else policies.checkpoints.get(policy), told=bool(known)
        )
    if start.timeline and not history.started and not history.imported:
        first += first_events(history, run=settings.run_id, now=now, uri=start.weights, digest=start.digest)
    marks = await sound_marks(connection, known, history, run.partitions, rollouts, whole=whole, latest=start.latest)
    return StartPoint(marks, first, told=bool(known))


async def _weights_of(policy: Policy, start: Start, run: str, policies: PolicyLog) -> PublishedPolicy:
    """The weights that are gone back to: as they were published, else as the checkpoint holds them."""
    resume = start.resume
    if isinstance(resume, Policy | str | Mapping) and start.weights is not None:
        return PublishedPolicy(policy, start.weights, start.digest, 0)
    if policy in policies.history.published or policy not in policies.checkpoints:
        return await policies.find(policy)
    saved = policies.checkpoints[policy]
    if resume is None or isinstance(resume, Policy | str | Mapping):
        return PublishedPolicy(policy, saved.uri, saved.digest, 0)
    first = Policy(policies.history.next_timeline(), policy.version)
    uri, digest = await asyncio.to_thread(resume.weights, run, saved, first)
    return PublishedPolicy(policy, uri, digest, 0)


async def _policy_of(
    resume: Policy | str | Mapping[str, Any] | CheckpointChoice, run: str, policies: PolicyLog
) -> Policy | None:
    """The policy that is gone back to; None where there is none to choose."""
    if isinstance(resume, Policy):
        if resume not in policies.checkpoints:
            await policies.find(resume)
        return resume
    if isinstance(resume, Mapping):
        return _of_state(resume, run, policies.checkpoints)
    if not isinstance(resume, str):
        return await _chosen(resume, run, policies)
    newest = newest_live(policies.checkpoints.values(), policies.history)
    if newest is None:
        raise NotFound(
            "no checkpoint is on the log that the current timeline shares",
            "start without `resume`: the stream goes on after the last step; or resume from a published policy",
        )
    return newest.policy


async def _chosen(choice: CheckpointChoice, run: str, policies: PolicyLog) -> Policy | None:
    """What is chosen, in a thread of its own, since it reads files."""
    history = policies.history
    chosen = await asyncio.to_thread(choice.choose, run, [*policies.checkpoints.values()], history)
    if chosen is None and history.current is not None:
        log.warning("no checkpoint is on the log yet: the trainer goes back to policy %s", history.current)
    return chosen or history.current


def _of_state(state: Mapping[str, Any], run: str, known: Mapping[Policy, SavedCheckpoint]) -> Policy:
    """The checkpoint that a `state_dict` is of. Raises RunMismatch for another run's, NotFound for one that was never
    told."""
    if state.get("run") != run:
        raise RunMismatch(f"this state is of run {state.get('run')!r}, not of {run!r}", "load the state of this run")
    timeline, step = state.get("timeline"), state.get("step")
    found = next((policy for policy in known if policy == (timeline, step)), None)
    if found is not None:
        return found
    raise NotFound(
        f"no checkpoint of step {step} on timeline {timeline} is on the log: it was written down, and never told",
        'a checkpoint counts from `trained(batch, checkpoint=...)` on; `Start(resume="checkpoint")` takes the newest',
    )


def forked(history: History, at: Policy) -> History:
    """The history as it is once a timeline goes on from that policy."""
    there = History(dict(history.forks), set(), history.imported)
    there.start(history.next_timeline(), at.timeline, at.version)
    return there


def check_first_step(start: Start, history: History, last: int | None) -> None:
    """Refuse a first step that is on the log: its policy would be published twice, and what it trains would count as if
    it lay before steps that it comes after. Raises SettingsError."""
    if start.step is None or not history.started:
        return
    done = max(last or 0, history.forks[history.timeline].step)
    if start.step <= done:
        raise SettingsError(
            f"a start at step {start.step}, but the last on the log is {done}",
            "without `step` it goes on after that one; `resume` goes back to a policy, and makes void what came after",
        )


def check_last_step(start: Start, origin: StartPoint, history: History, last: int | None) -> None:
    """Refuse weights of a step of which `group-events` says nothing, where steps are told: what it trained would be
    trained again. Whoever says which step comes first knows better. Raises RecordsDeleted."""
    newest = history.current
    if start.latest or start.step is not None or not origin.told or newest is None or newest.version <= (last or 0):
        return
    raise RecordsDeleted(
        f"policy {newest} was published, but the last step of which group-events says what was trained is {last or 0}",
        f"{LOST_HINT}; for policies that were published by hand say the first step: `Start(step={newest.version + 1})`",
    )


def first_step(start: Start, history: History, last: int | None) -> int | None:
    """The next train step, after the `last` on the log; None where policies are imported: then each group has its own
    (design/trainer#timelines)."""
    if start.step is not None or not history.started:
        return start.step
    version = history.current.version if history.current else 0
    return max(last or 0, version) + 1
