"""The records of a train step and of a trainer's start, in their order (design/trainer#steps).

Guarantees: pure; what is given to one call belongs into one transaction. Leaves out: writing
(`rolloutlog.trainer.steps.step_writer`).
"""

from __future__ import annotations

from rolloutlog.contract.events.event import Outgoing
from rolloutlog.contract.events.group_events import final_event
from rolloutlog.contract.events.policy_versions import (
    PublishedPolicy,
    SavedCheckpoint,
    checkpoint_saved,
    policy_published,
    timeline_started,
)
from rolloutlog.contract.events.run import step_closed
from rolloutlog.contract.events.watermarks import Watermarks
from rolloutlog.contract.policies import History, Policy
from rolloutlog.trainer.dispatch.batch import Batch
from rolloutlog.trainer.dispatch.unwritten_events import SOURCE, UnwrittenEvents
from rolloutlog.trainer.steps.closing import Closing
from rolloutlog.trainer.steps.step_outcome import StepOutcome


def step_events(
    batch: Batch,
    unwritten: UnwrittenEvents,
    policy: Policy | None,
    closing: Closing,
    outcome: StepOutcome,
    *,
    run: str,
    now: int,
) -> list[Outgoing]:
    """The records of a step; that it is closed comes last."""
    trained = [final_event(group.final, source=SOURCE, now=now) for group in batch.groups]
    marks = closing.watermarks
    return [
        *unwritten.events(now),
        *trained,
        *closing.chunk_events(now),
        *saved_events(marks, policy, outcome, run=run, now=now),
        *([] if marks is None else [step_closed(marks, source=SOURCE, now=now)]),
    ]


def saved_events(
    marks: Watermarks | None, policy: Policy | None, outcome: StepOutcome, *, run: str, now: int
) -> list[Outgoing]:
    """What a step left that closes with these `marks`: its policy, where it has one, and its checkpoint."""
    events = list[Outgoing]()
    if policy is not None:
        uri, digest = outcome.publish, outcome.digest
        events.append(policy_published(policy, run=run, source=SOURCE, now=now, uri=uri, digest=digest))
    if outcome.checkpoint is not None and marks is not None:
        uri, digest = outcome.checkpoint
        saved = SavedCheckpoint(**marks.model_dump(), uri=uri, digest=digest)
        events.append(checkpoint_saved(saved, run=run, source=SOURCE, now=now))
    return events


def first_events(history: History, *, run: str, now: int, uri: str | None, digest: str | None = None) -> list[Outgoing]:
    """A trainer's first start: its timeline and version 0 (design/trainer#timelines)."""
    timeline = history.next_timeline()
    return [
        timeline_started(timeline, None, 0, run=run, source=SOURCE, now=now),
        policy_published(Policy(timeline, 0), run=run, source=SOURCE, now=now, uri=uri, digest=digest),
    ]


def resumed_events(
    history: History, weights: PublishedPolicy, marks: Watermarks | None, *, run: str, now: int
) -> list[Outgoing]:
    """A trainer goes on from an older policy: the next timeline, those weights as its first policy, and that the step
    is closed there too, by the marks of a step at or before it (design/trainer#timelines)."""
    timeline, (parent, step) = history.next_timeline(), weights.policy
    first = Policy(timeline, step)
    return [
        timeline_started(timeline, parent, step, run=run, source=SOURCE, now=now),
        policy_published(first, run=run, source=SOURCE, now=now, uri=weights.uri, digest=weights.digest),
        *([] if marks is None else [step_closed(_forked(marks, first), source=SOURCE, now=now)]),
    ]


def _forked(marks: Watermarks, first: Policy) -> Watermarks:
    return marks.model_copy(update={"timeline": first.timeline, "step": first.version})
