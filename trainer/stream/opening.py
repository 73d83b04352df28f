"""Opening a trainer's parts, in the one order that is safe (design/trainer#timelines).

Guarantees: nothing is read before every earlier trainer is fenced, so what is read stays true; the timeline is there
before the first group is judged. Leaves out: using the parts.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass

from rolloutlog.contract.errors import RecordsDeleted, SettingsError
from rolloutlog.contract.events.policy_versions import SavedCheckpoint
from rolloutlog.contract.events.watermarks import PartitionMarks
from rolloutlog.contract.policies import History
from rolloutlog.contract.roles import Role
from rolloutlog.contract.settings import Settings
from rolloutlog.contract.topics import Topic
from rolloutlog.kafka.blobs.blob_store import BlobStore
from rolloutlog.kafka.client.connection import HIDDEN_S, Connection, connect
from rolloutlog.kafka.loop.presence import Presence
from rolloutlog.kafka.read.ends import Ends, Place, ends
from rolloutlog.kafka.read.payloads import PayloadReader
from rolloutlog.kafka.read.policy_log import PolicyLog
from rolloutlog.kafka.read.tail import Tail
from rolloutlog.kafka.run_record import RunRecord, agree
from rolloutlog.kafka.write.writing import now_ms
from rolloutlog.trainer.dispatch.decision import DispatchPolicy
from rolloutlog.trainer.dispatch.order import order_of
from rolloutlog.trainer.dispatch.sampler import Sampler
from rolloutlog.trainer.groups.assembly import Assembly
from rolloutlog.trainer.groups.filters import GroupFilter
from rolloutlog.trainer.restarts.restoring import Restored, read_rejected, restore_endings
from rolloutlog.trainer.restarts.sealed_records import check_seals
from rolloutlog.trainer.steps.step_writer import StepWriter
from rolloutlog.trainer.stream.intake import Budget, Intake
from rolloutlog.trainer.stream.rollout_log import RolloutLog, open_rollout_log
from rolloutlog.trainer.stream.seed_reader import SeedReader
from rolloutlog.trainer.stream.starting import (
    Start,
    StartPoint,
    check_first_step,
    check_last_step,
    first_step,
    start_point,
)

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Parts:
    """What a stream works with. `history` is of the trainer's own timelines, `policies` the topic that says them; those
    that sampled are with the `rollouts`."""

    connection: Connection
    rollouts: RolloutLog
    policies: PolicyLog
    presence: Presence
    writer: StepWriter
    history: History
    intake: Intake
    seeds: SeedReader
    sampler: Sampler
    payloads: PayloadReader
    blobs: BlobStore | None
    step: int | None
    resumed: SavedCheckpoint | None

    @property
    def pass_number(self) -> int:
        """Which pass over the source this is."""
        return max(assembly.pass_number for assembly in self.intake.assemblies.values())

    def begin_again(self) -> None:
        """Begin another pass over the source: nothing is lent, and nothing is unwritten."""
        begins = self.rollouts.begins
        for number, assembly in self.intake.assemblies.items():
            assembly.begin_again(begins[number])
        self.sampler.begin_again()
        self.intake.begin_again(begins)


async def open_parts(
    stack: AsyncExitStack, settings: Settings, start: Start, filters: tuple[GroupFilter, ...] = ()
) -> Parts:
    """All parts, closed with the stack; `filters` are those that `settings` name.

    Raises BrokerUnreachable, TopicMissing, RunMismatch, TopicMismatch, OpenTransaction, UnknownPolicy, NotFound,
    RecordsDeleted, SettingsError.
    """
    connection = await connect(settings, Role.TRAINER)
    run = await agree(connection, settings)
    settings = run.fit(settings)
    check_offline(run, settings, start)
    writer = StepWriter(connection, patience_s=settings.trainer.write_s)
    stack.push_async_callback(writer.close)
    run = await writer.start(run)  # with what the trainer before said
    policies = await stack.enter_async_context(PolicyLog(connection))
    history = policies.history
    rollouts = await open_rollout_log(stack, connection, settings, run, policies)
    known = rollouts.known
    origin = await start_point(connection, start, settings, run, policies, known, now_ms())
    marks = origin.marks.partitions
    await _check_start(connection, start, origin, rollouts)
    await _write_start(connection, writer, policies, origin)
    highs = {number: end.high for (_, number), end in known.items()}
    restored = await restore_endings(connection, history, origin.marks, highs, wait_s=HIDDEN_S, passes=rollouts.offline)
    check_first_step(start, history, restored.last_step)
    check_last_step(start, origin, history, restored.last_step)
    lows = _lows(start, origin, restored, rollouts)
    below = rollouts.begins if rollouts.offline else lows  # a later pass begins there again
    rejected = await read_rejected(rollouts.connection, below, wait_s=HIDDEN_S)
    tail = await stack.enter_async_context(rollouts.tail(lows))
    payloads = await stack.enter_async_context(PayloadReader(rollouts.connection))
    assemblies = {
        number: rollouts.assembly(number, endings=endings, next_offset=lows[number], pass_number=restored.pass_number)
        for number, endings in restored.endings.items()
    }
    seeds = await stack.enter_async_context(await _seed_tail(connection, marks))
    _note_cuts(start, origin, rollouts, assemblies)
    trainer = settings.trainer
    return Parts(
        connection=connection,
        rollouts=rollouts,
        policies=policies,
        presence=Presence(connection, [Topic.ROLLOUTS, Topic.GROUP_EVENTS, Topic.POLICY_VERSIONS]),
        writer=writer,
        history=history,
        intake=Intake(
            tail=tail,
            policies=rollouts.policies,
            assemblies=assemblies,
            blobs=rollouts.blobs,
            budget=Budget(trainer.buffer_bytes if start.payloads else 0, trainer.buffer_groups),
            payloads=payloads if start.payloads else None,
            rejected_before=rejected,
        ),
        seeds=SeedReader(seeds, assemblies),
        sampler=Sampler(assemblies, _dispatch(settings, start, filters, rollouts), order_of(trainer), own=history),
        payloads=payloads,
        blobs=rollouts.blobs,
        step=first_step(start, history, restored.last_step),
        resumed=origin.checkpoint,
    )


def _dispatch(
    settings: Settings, start: Start, filters: tuple[GroupFilter, ...], rollouts: RolloutLog
) -> DispatchPolicy:
    """Of a source that has ended nobody can be asked for more, and groups are judged for a step only if it is given."""
    live = not rollouts.offline
    return DispatchPolicy(
        settings.trainer, rollouts.policies.history, filters, asks=live, steps=live or start.step is not None
    )


def _lows(start: Start, origin: StartPoint, restored: Restored, rollouts: RolloutLog) -> dict[int, int]:
    """Where each partition of `rollouts` is read from."""
    marks = enumerate(origin.marks.partitions)
    marked = {number: 0 if restored.begun else mark.low for number, mark in marks}
    lows = {number: max(low, rollouts.begins[number]) for number, low in marked.items()} | {**(start.offsets or {})}
    if start.latest:  # what was deleted above a watermark would be skipped
        return {number: max(low, rollouts.known[Topic.ROLLOUTS, number].first) for number, low in lows.items()}
    return lows


def _note_cuts(start: Start, origin: StartPoint, rollouts: RolloutLog, assemblies: Mapping[int, Assembly]) -> None:
    """Tell each assembly what lies below it that nobody reads."""
    marks, said = origin.marks.partitions, origin.marks.said
    for (_, number), end in rollouts.known.items():
        assembly = assemblies[number]
        skips = assembly.next_offset > marks[number].low if said else start.offsets is None and end.first > 0
        assembly.cut_below = cut_below(number, end) if skips else 0


def check_offline(run: RunRecord, settings: Settings, start: Start) -> None:
    """Refuse what only goes together with a source that is trained, or doesn't with one. Raises SettingsError."""
    if run.trained_source is not None:
        if start.latest:
            raise SettingsError("a source has ended: nothing comes after its latest end", "start without `latest`")
    elif settings.trainer.max_passes > 1:
        raise SettingsError(
            f"trainer.max_passes {settings.trainer.max_passes}: where rollouts are still made each group trains once",
            "train a run that has ended offline (`rolloutlog topics create --source MANIFEST --offline`)",
        )


def cut_below(partition: int, end: Ends) -> int:
    """Below which offset groups may have lost records, where what lies before was deleted or isn't read. It logs a
    warning."""
    log.warning(
        "rollouts/%d begins at offset %d, or is read from later on: groups that are there now are trained only with "
        "all of their members, whatever the deadline",
        partition,
        end.first,
    )
    return end.high


async def _seed_tail(connection: Connection, marks: Sequence[PartitionMarks]) -> Tail:
    """From the watermarks on; those that were deleted above one are of groups that will never end, and hold nobody."""
    known = await ends(connection, [Topic.SEEDS])
    return Tail(connection, {place: max(marks[place[1]].seeds, end.first) for place, end in known.items()}, known=known)


async def _check_start(connection: Connection, start: Start, origin: StartPoint, rollouts: RolloutLog) -> None:
    """Refuse to go back to before a seal, and where records of open groups are gone. Raises RecordsDeleted."""
    if origin.forked is not None:
        await check_seals(connection, origin.forked)
    if origin.marks.said is not None and start.offsets is None and not start.latest:
        check_marks(rollouts.connection, origin.marks.partitions, rollouts.known)


async def _write_start(connection: Connection, writer: StepWriter, policies: PolicyLog, origin: StartPoint) -> None:
    """Put on the log what a start says, in one transaction, which is read back; then seals are looked at once more
    (`sealed_records` says why). Raises RecordsDeleted."""
    if origin.first:
        written = await writer.write(origin.first)
        name = connection.names.topic(Topic.POLICY_VERSIONS)
        await policies.catch_up(max((one.offset + 1 for one in written if one.topic == name), default=0))
    if origin.forked is not None:
        await check_seals(connection, origin.forked)


def check_marks(connection: Connection, marks: Sequence[PartitionMarks], ends: Mapping[Place, Ends]) -> None:
    """Refuse partitions of `rollouts` that lack records of open groups. Raises RecordsDeleted."""
    for number, mark in enumerate(marks):
        begins = ends[Topic.ROLLOUTS, number].first
        if begins > mark.low:
            gone = f"group {mark.first}, which was open," if mark.first else "whatever came after the last step"
            raise RecordsDeleted(
                f"{connection.names.topic(Topic.ROLLOUTS)}/{number} begins at offset {begins}, but groups were open "
                f"from {mark.low} on: {gone} has lost records, and so has every group that began below {begins}",
                f"`Start(offsets={{{number}: {begins}, ...}})` goes on without them: they are trained only with all of "
                "their members",
            )
