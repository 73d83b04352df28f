"""Opening a trainer's parts, in the one order that is safe (design/trainer#timelines).

Guarantees: nothing is read before every earlier trainer is fenced, so what is read stays true; the timeline is there
before the first group is judged. Leaves out: using the parts.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass

from rolloutlog.contract.events.event import Outgoing
from rolloutlog.contract.events.run import trainer_recorded
from rolloutlog.contract.partitions import partition_of
from rolloutlog.contract.policies import History, Policy
from rolloutlog.contract.roles import Role
from rolloutlog.contract.settings import Settings
from rolloutlog.contract.topics import Topic
from rolloutlog.kafka.blobs.blob_store import FOR_EVER, BlobStore, store_of
from rolloutlog.kafka.client.connection import HIDDEN_S, Connection, connect
from rolloutlog.kafka.loop.presence import Presence
from rolloutlog.kafka.read.ends import Ends, ends
from rolloutlog.kafka.read.payloads import PayloadReader
from rolloutlog.kafka.read.policy_log import PolicyLog
from rolloutlog.kafka.read.tail import Tail
from rolloutlog.kafka.run_record import agree, read_run
from rolloutlog.trainer.dispatch.decision import DispatchPolicy
from rolloutlog.trainer.dispatch.order import order_of
from rolloutlog.trainer.dispatch.sampler import Sampler
from rolloutlog.trainer.dispatch.step import StepWriter
from rolloutlog.trainer.dispatch.step_events import first_events, resumed_events
from rolloutlog.trainer.dispatch.unwritten_events import SOURCE
from rolloutlog.trainer.groups.assembly import Assembly
from rolloutlog.trainer.stream.group_history import GroupHistory, read_group_history
from rolloutlog.trainer.stream.intake import Budget, Intake

log = logging.getLogger(__name__)


@dataclass(slots=True, frozen=True)
class Start:
    """How a stream starts. `step`: the first train step (None: the one after the last on the log); `offsets` to read
    from.

    `payloads` False keeps no payload. `timeline` False starts none, for who publishes no weights; else a first start
    does, unless the policies are imported ones. `weights` is where version 0 lies, `digest` theirs.

    `resume` goes back to a policy that was published: a new timeline begins with its weights, and the steps after it
    become void. A start that only goes on after a stop or a crash needs none.
    """

    step: int | None = None
    payloads: bool = True
    timeline: bool = True
    weights: str | None = None
    digest: str | None = None
    resume: Policy | None = None
    offsets: Mapping[int, int] | None = None


@dataclass(slots=True)
class Parts:
    """What a stream works with."""

    connection: Connection
    presence: Presence
    writer: StepWriter
    history: History
    intake: Intake
    sampler: Sampler
    payloads: PayloadReader
    blobs: BlobStore | None
    step: int | None


def now_ms() -> int:
    """Milliseconds since 1970."""
    return time.time_ns() // 1_000_000


async def open_parts(stack: AsyncExitStack, settings: Settings, start: Start) -> Parts:
    """All parts, closed with the stack.

    Raises BrokerUnreachable, TopicMissing, RunMismatch, TopicMismatch, OpenTransaction, UnknownPolicy.
    """
    connection = await connect(settings, Role.TRAINER)
    settings = (await agree(connection, settings)).fit(settings)
    writer = StepWriter(connection, patience_s=settings.trainer.write_s)
    stack.push_async_callback(writer.close)
    await writer.start()
    policies = await stack.enter_async_context(PolicyLog(connection))
    history = policies.history
    await _record_start(connection, writer, policies, settings, start)
    partitions = range(settings.topics.partitions)
    recorded = await read_group_history(connection, history, partitions, wait_s=HIDDEN_S)
    blobs = store_of(settings, patience_s=FOR_EVER)
    offsets = start.offsets or {}
    known = await ends(connection, [Topic.ROLLOUTS])
    starts = {(Topic.ROLLOUTS, number): offsets.get(number, 0) for number in partitions}
    tail = Tail(connection, starts, known=known)
    await stack.enter_async_context(tail)
    payloads = await stack.enter_async_context(PayloadReader(connection))
    assemblies = assemblies_of(recorded, len(partitions))
    for (_, number), end in known.items():
        if not offsets.get(number, 0):
            assemblies[number].cut_below = cut_below(number, end)
    trainer = settings.trainer
    budget = Budget(trainer.buffer_bytes if start.payloads else 0, trainer.buffer_groups)
    return Parts(
        connection=connection,
        presence=Presence(connection, [Topic.ROLLOUTS, Topic.GROUP_EVENTS, Topic.POLICY_VERSIONS]),
        writer=writer,
        history=history,
        intake=Intake(
            tail=tail,
            policies=policies,
            assemblies=assemblies,
            blobs=blobs,
            budget=budget,
            payloads=payloads if start.payloads else None,
            rejected_before=recorded.rejected_before,
        ),
        sampler=Sampler(assemblies, DispatchPolicy(trainer, history), order_of(trainer)),
        payloads=payloads,
        blobs=blobs,
        step=first_step(start, history, recorded.last_step),
    )


async def _record_start(
    connection: Connection, writer: StepWriter, policies: PolicyLog, settings: Settings, start: Start
) -> None:
    """Record the settings that this trainer judges by, unless they are the last on the log, and begin a timeline where
    there is none, or one is resumed from; in one transaction, which is read back."""
    history, events = policies.history, list[Outgoing]()
    if (await read_run(connection)).trainer != settings.trainer.recorded():
        events.append(trainer_recorded(settings.trainer, source=SOURCE, now=now_ms()))
    if start.resume is not None:
        weights = await policies.find(start.resume)
        events += resumed_events(history, weights, run=settings.run_id, now=now_ms())
    elif start.timeline and not history.started and not history.imported:
        events += first_events(history, run=settings.run_id, now=now_ms(), uri=start.weights, digest=start.digest)
    if events:
        written = await writer.write(events)
        name = connection.names.topic(Topic.POLICY_VERSIONS)
        await policies.catch_up(max((one.offset + 1 for one in written if one.topic == name), default=0))


def cut_below(partition: int, end: Ends) -> int:
    """Below which offset groups may have lost records; 0 where the partition is whole. It logs a warning."""
    if end.first == 0:
        return 0
    log.warning(
        "rollouts/%d begins at offset %d, what lay before was deleted: groups that are there now are trained only with "
        "all of their members, whatever the deadline",
        partition,
        end.first,
    )
    return end.high


def assemblies_of(
    recorded: GroupHistory, partitions: int, *, keep_ended: bool = False, prefix: str = ""
) -> dict[int, Assembly]:
    """An assembly per partition, which knows what ended and expired before."""
    made = {
        number: Assembly(number, expired=recorded.expired, keep_ended=keep_ended, prefix=prefix)
        for number in range(partitions)
    }
    for group, final in recorded.finals.items():
        made[partition_of(group, partitions)].ended[group] = final.as_of
    return made


def first_step(start: Start, history: History, last: int | None) -> int | None:
    """The next train step, after the `last` on the log; None where policies are imported: then each group has its own
    (design/trainer#timelines)."""
    if start.step is not None or not history.started:
        return start.step
    version = history.current.version if history.current else 0
    return max(last or 0, version) + 1
