"""`gc`: count for good what nobody needs any more, then delete it (design/log#seals).

Guarantees: nothing is deleted that isn't sealed, and nothing at or above what a checkpoint, a step, an open group, a
source, a row or a pinned manifest needs; a crash between seal and deletion is made good by the next run; a newer
collection fences an older one before it has sealed. Leaves out: `group-events`, which say for ever which groups ended,
the topics that are small, and bodies in a blob store.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from rolloutlog.consumers.audit.auditor import ORDER, small_topics, suspected_seeds, usable_seals
from rolloutlog.consumers.audit.partition_reading import PartitionReading
from rolloutlog.consumers.audit.seed_ids import repeated_seeds
from rolloutlog.consumers.audit.small_topics import SmallTopics
from rolloutlog.consumers.audit.violations import Violation
from rolloutlog.consumers.collecting.collected import Collected, KeptFrom
from rolloutlog.consumers.collecting.need import Need, kept_marks, lowest, pinned_needs, trainer_needs
from rolloutlog.consumers.collecting.partition_sealing import PartitionSealing
from rolloutlog.consumers.collecting.shard_needs import shard_needs
from rolloutlog.contract.errors import Fenced, NotFound
from rolloutlog.contract.events.audit_sealed import AuditSeal, audit_sealed
from rolloutlog.contract.events.manifest_pinned import ManifestPin, manifest_pinned, read_pins
from rolloutlog.contract.events.run import SEAL, closed_steps
from rolloutlog.contract.events.watermarks import Watermarks
from rolloutlog.contract.policies import Policy
from rolloutlog.contract.roles import Role
from rolloutlog.contract.settings import Settings
from rolloutlog.contract.topics import COLLECTED, Topic
from rolloutlog.kafka.client.connection import HIDDEN_S, Connection, connect
from rolloutlog.kafka.client.deleting import delete_below
from rolloutlog.kafka.read.ends import Ends, Place, ends
from rolloutlog.kafka.read.policy_log import read_policy_log
from rolloutlog.kafka.read.reading import settled
from rolloutlog.kafka.run_record import RunRecord, read_run
from rolloutlog.kafka.write.transactions import TransactionalWriter
from rolloutlog.kafka.write.writing import now_ms

SOURCE, TRANSACTION_ID = "/gc", "gc"
RUN = (Topic.RUN, 0)
OnProgress = Callable[[int, int], None]
"""Called with partitions counted and their number."""


@dataclass(slots=True, frozen=True)
class Options:
    """`checkpoints`: how many of the newest a trainer may still go back to. `with_violations`: delete also where the
    audit finds something wrong, which the seal then tells."""

    dry_run: bool = False
    checkpoints: int = 2
    with_violations: bool = False


async def collect(
    settings: Settings, options: Options | None = None, on_progress: OnProgress = lambda done, of: None
) -> Collected:
    """Seal and delete. Raises NotFound (no topics), IndexMismatch, Fenced by a newer one, BrokerUnreachable."""
    options = options or Options()
    connection = await connect(settings, Role.GC)
    writer = TransactionalWriter(connection, connection.names.transactional_id(TRANSACTION_ID))
    if options.dry_run:
        plan = await _planned(connection, settings, options, on_progress)
        return plan.collected(plan.pins)
    async with writer:
        plan = await _planned(connection, settings, options, on_progress)
        pins = await _sealed(connection, writer, plan)
        found = plan.collected(pins)
        await delete_below(connection, {(each.topic, each.partition): each.offset for each in found.kept})
        return found


async def unpin(settings: Settings, digest: str) -> str:
    """Let a manifest hold nothing any more, by its digest or how that begins; the digest. Raises NotFound."""
    connection = await connect(settings, Role.GC)
    pins, _ = read_pins((await read_run(connection)).facts)
    meant = [pin.manifest for pin in pins if pin.manifest.startswith(digest)]
    if len(meant) != 1:
        there = ", ".join(pin.manifest[:16] for pin in pins) or "none"
        raise NotFound(
            f"{len(meant)} pinned manifests begin with {digest!r}", f"pinned are: {there}; `rolloutlog gc --dry-run`"
        )
    writer = TransactionalWriter(connection, connection.names.transactional_id(TRANSACTION_ID))
    async with writer, writer.transaction() as transaction:
        await transaction.send(manifest_pinned(ManifestPin(manifest=meant[0]), source=SOURCE, now=now_ms()))
    return meant[0]


@dataclass(slots=True, frozen=True)
class _Plan:
    """What can be sealed by partition, by what records are held, and what on `run` can't be used."""

    options: Options
    known: Mapping[Place, Ends]
    partitions: Sequence[PartitionSealing]
    pins: Sequence[ManifestPin]
    ignored: Sequence[str]

    def collected(self, pins: Sequence[ManifestPin]) -> Collected:
        """From where on everything is kept, by the pins that there are once the seals can be read."""
        sealed = sum(each.counted for each in self.partitions)
        found = Collected(self.options.dry_run, sealed, ignored=[*self.ignored])
        for topic in COLLECTED:
            for each in self.partitions:
                number = each.reading.partition
                need = lowest([each.kept(topic), *pinned_needs(pins, number)], topic)
                found.kept.append(KeptFrom.of(need, number, self.known[topic, number].first))
        return found


async def _planned(connection: Connection, settings: Settings, options: Options, on_progress: OnProgress) -> _Plan:
    known = await ends(connection, ORDER)
    small = await small_topics(connection, known)
    run = await read_run(connection)
    settings = run.own_buffer(run.fit(settings))
    seals, ignored = usable_seals(run, small.policies.history, known)
    pins, wrong = read_pins(run.facts)
    marks = _marks(run, small, options.checkpoints)
    point = None if marks is None else _point(marks, seals.values())
    partitions: list[PartitionSealing] = []
    for number in range(run.partitions):
        is_live = small.policies.history.is_live if point is None else partial(_is_fixed, small, point)
        reading = PartitionReading(connection, known, number, run.partitions, is_live)
        needs = _held("its seal can't be used") if number not in seals and f"{SEAL}{number}" in run.facts else []
        needs += _held("no trainer has closed a step") if marks is None else trainer_needs(marks, number)
        needs += await shard_needs(await reading.index(), settings)
        needs += pinned_needs(pins, number)
        partitions.append(PartitionSealing(reading, needs, seals.get(number)))
    if marks is not None and point is not None:
        at = marks.model_copy(update={"timeline": point.timeline, "step": point.version})
        repeated = await _repeated(connection, known, small, seals, partitions)
        for done, each in enumerate(partitions):
            on_progress(done, len(partitions))
            await each.run(small, at, repeated[each.reading.partition])
        on_progress(len(partitions), len(partitions))
    if not options.with_violations:
        for each in partitions:
            each.hold_violations()
    return _Plan(options, known, partitions, pins, [*ignored, *wrong])


def _marks(run: RunRecord, small: SmallTopics, checkpoints: int) -> Watermarks | None:
    """From where on a trainer may go on; None where none has closed a step of as many partitions."""
    policies = small.policies
    found = kept_marks(policies.checkpoints.values(), closed_steps(run.facts), policies.history, checkpoints)
    return found if found is not None and len(found.partitions) == run.partitions else None


def _point(marks: Watermarks, seals: Iterable[AuditSeal]) -> Policy:
    """The step below which no trainer goes back; a seal has fixed that before."""
    steps = [(marks.step, marks.timeline), *((seal.step, seal.timeline) for seal in seals)]
    step, timeline = max(steps)
    return Policy(timeline, step)


def _is_fixed(small: SmallTopics, point: Policy, timeline: int, step: int) -> bool:
    return small.policies.history.is_live_at(timeline, step, point)


def _held(why: str) -> list[Need]:
    """Everything is."""
    return [Need(topic, 0, why) for topic in COLLECTED]


async def _repeated(
    connection: Connection,
    known: Mapping[Place, Ends],
    small: SmallTopics,
    seals: Mapping[int, AuditSeal],
    partitions: Sequence[PartitionSealing],
) -> Mapping[int, list[Violation]]:
    """By partition, the seeds that occur twice and that nobody can compare once their first one is sealed."""
    seeds = await suspected_seeds(connection, known, small, seals)
    starts = [each.seeds for each in partitions]
    left = Counter(repeated_seeds(seed for seed in seeds if seed.offset >= starts[seed.partition]))
    found: dict[int, list[Violation]] = defaultdict(list)
    for violation in (Counter(repeated_seeds(seeds)) - left).elements():
        found[violation.partition or 0].append(violation)
    return found


async def _sealed(connection: Connection, writer: TransactionalWriter, plan: _Plan) -> Sequence[ManifestPin]:
    """Write the seals in one transaction, then look for resumes, and which manifests are pinned by now: who comes later
    finds the seals, and is told."""
    new = [each.seal for each in plan.partitions if each.is_new and each.seal is not None]
    if new:
        async with writer.transaction() as transaction:
            await transaction.send_all([audit_sealed(seal, source=SOURCE, now=now_ms()) for seal in new])
        await settled(connection, [RUN], HIDDEN_S, least=max(one.offset for one in transaction.written) + 1)
    await _look_for_resumes(connection, [each.seal for each in plan.partitions if each.seal is not None])
    return read_pins((await read_run(connection)).facts)[0]


async def _look_for_resumes(connection: Connection, seals: Sequence[AuditSeal]) -> None:
    """Delete nothing where a trainer went back meanwhile to before a seal."""
    await settled(connection, [(Topic.POLICY_VERSIONS, 0)], HIDDEN_S)
    history = (await read_policy_log(connection, allow_open=True)).history
    for seal in seals:
        if not history.is_live(seal.timeline, seal.step):
            raise Fenced(
                f"a trainer has gone back to before step {seal.step} of timeline {seal.timeline} while this ran: "
                "nothing is deleted"
            )
