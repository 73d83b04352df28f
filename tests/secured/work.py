"""What each role does, all of it: the commands and classes that `USED_BY` names, on namespaces prepared for them.

Guarantees: whoever runs one of these has used every right that the role has. Leaves out: who may run it.
"""

from __future__ import annotations

import asyncio
import re
import secrets
import shutil
import tempfile
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

import pytest

from rolloutlog.consumers.audit.auditor import audit
from rolloutlog.consumers.buffer_service import run_buffer
from rolloutlog.consumers.collecting.gc_service import collect, unpin
from rolloutlog.consumers.exporting.export_service import export_rollouts
from rolloutlog.consumers.reindexing import reindex
from rolloutlog.consumers.replaying.freezing import freeze
from rolloutlog.consumers.replaying.horizons import Until
from rolloutlog.consumers.replaying.replay_buffer import ReplayBuffer
from rolloutlog.consumers.replaying.seed_check import check_seeds
from rolloutlog.consumers.retrying.letter import LetterFilter
from rolloutlog.consumers.retrying.outcome import Outcome
from rolloutlog.consumers.retrying.retry_service import retry
from rolloutlog.consumers.views.run_status import status
from rolloutlog.consumers.views.seed_view import candidate_rows, seed_rows
from rolloutlog.consumers.views.tailing import tail_events
from rolloutlog.contract.errors import NotFound
from rolloutlog.contract.events.dead_letters import rejected_event
from rolloutlog.contract.events.seeds import Ask, Seed
from rolloutlog.contract.roles import Role
from rolloutlog.contract.settings import Settings
from rolloutlog.contract.topics import Topic
from rolloutlog.contract.vocabulary import RejectReason, SeedKind
from rolloutlog.contract.wire.rejection import Rejected
from rolloutlog.kafka.client.acls import Right, acls
from rolloutlog.kafka.client.admin import create_topics, delete_topics, describe_topics, with_admin
from rolloutlog.kafka.client.altering import alter_topics
from rolloutlog.kafka.client.connection import Connection, connect, connection_of
from rolloutlog.kafka.client.owners import owners
from rolloutlog.kafka.loop.loop_options import LoopOptions
from rolloutlog.kafka.read.reading import read_one
from rolloutlog.kafka.run_record import declare
from rolloutlog.kafka.write.writing import Writer
from rolloutlog.producers.feeding.seed_feeder import SeedFeeder
from rolloutlog.producers.feeding.task_source import TaskSource
from rolloutlog.producers.importing.demo_records import demo_run
from rolloutlog.producers.importing.follow import follow_runs
from rolloutlog.producers.importing.import_service import import_runs
from rolloutlog.producers.policy_publisher import PolicyPublisher
from rolloutlog.producers.producer import RolloutProducer
from rolloutlog.producers.workers.rollout_worker import run_worker
from rolloutlog.trainer.dispatch_service import run_dispatch
from rolloutlog.trainer.stream.group_stream import GroupStream
from rolloutlog.trainer.stream.group_view import groups_view
from tests.cases.rollouts import altered, sound
from tests.producers.log import emit, everything, seed_of, until
from tests.producers.sums import Digits, Sums

MADE, LIVE, RECORDED, SPENT = "made", "live", "recorded", "spent"
"""Namespaces: of the operator, with policies of our own, with imported ones, and one that derives nothing, so that
nobody needs what was trained."""
NAMESPACES = (MADE, LIVE, RECORDED, SPENT)
SHORT = LoopOptions(session_timeout_ms=2000)
Work = Callable[[Settings, Settings], Awaitable[None]]
"""Told the role's settings and the administrator's, in the namespace that is right for it."""


def rights_in(namespace: str, role: Role) -> list[Right]:
    """What is printed for a role."""
    return [right for right in acls(namespace) if right.role is role]


def settings_for(namespace: str, **given: str) -> Settings:
    """Settings that every part of a test's run agrees on."""
    return Settings.model_validate(
        {
            "namespace": namespace,
            "topics": {"partitions": 1, "max_message_bytes": 256 * 1024},
            "buffer": {"max_attempts": 1} | ({"derivations": []} if namespace == SPENT else {}),
            "trainer": {"batch_groups": 1, "max_open": 64, "overcommit": True, "staleness": {"max_staleness": 8}},
            **given,
        }
    )


async def prepare(admin: Settings) -> None:
    """Topics, a declared run, and on the log what makes every role say all that it can say."""
    connection = connection_of(admin)
    await create_topics(connection, admin)
    await declare(connection, admin)
    if admin.namespace == LIVE:
        await _prepare_live(admin)
    elif admin.namespace == RECORDED:
        await _prepare_recorded(admin, connection)
    elif admin.namespace == SPENT:
        async with PolicyPublisher(admin) as policies:
            await policies.publish(1)
        await _send_bad(connection)


async def _prepare_live(admin: Settings) -> None:
    async with PolicyPublisher(admin) as policies:
        await policies.publish(1)
    await _group(admin, "before")
    await train(admin, admin)
    await run_buffer(admin, drain=True, options=SHORT)


async def _prepare_recorded(admin: Settings, connection: Connection) -> None:
    await import_runs(admin, [demo_run()])
    await run_dispatch(admin, drain=True)
    await emit(admin, seed_of("stuck"))
    async with RolloutProducer(admin) as producer:
        await producer.abort(sound("stuck").slot, sound("stuck").trajectory)
    await _send_bad(connection)


async def _send_bad(connection: Connection) -> None:
    """What a shard makes a dead letter of."""
    client = connection.producer()
    await client.start()
    await client.send_and_wait(connection.names.topic(Topic.ROLLOUTS), b"not a rollout", key=b"bad")
    await client.stop()


async def _group(admin: Settings, name: str) -> None:
    """A whole group, and a member that no policy sampled."""
    stranger = sound(f"{name}-unknown")
    stranger.trajectory = altered(stranger.trajectory, segments=[[0, 0, 0], [0, 99, 2]])
    async with RolloutProducer(admin) as producer:
        await producer.publish_many([sound(name, member, reward=float(member)) for member in range(2)])
        await producer.publish(stranger)


async def operate(settings: Settings, admin: Settings) -> None:
    """Make, mend, describe and delete."""
    by_admin = connection_of(admin)
    await create_topics(by_admin, admin)
    changes = {by_admin.names.topic(Topic.SEEDS): {"message.timestamp.type": "LogAppendTime"}}
    await with_admin(by_admin, lambda one: alter_topics(one, changes))
    connection = await connect(settings, Role.OPERATOR)
    await create_topics(connection, settings)
    await declare(connection, settings)
    assert len(await describe_topics(connection)) == len(Topic)
    assert len(await delete_topics(connection)) == len(Topic)
    await create_topics(connection, settings)
    await declare(connection, settings)


async def produce(settings: Settings, admin: Settings) -> None:
    """Publish."""
    async with RolloutProducer(settings) as producer:
        await producer.publish(sound("produced"))


async def publish(settings: Settings, admin: Settings) -> None:
    """Publish policies."""
    async with PolicyPublisher(settings) as policies:
        await policies.publish(1)


async def labour(settings: Settings, admin: Settings) -> None:
    """Take a seed, and go on with what another worker had sampled."""
    async with RolloutProducer(admin) as producer:
        aborted = await producer.abort(sound("g").slot, sound("g").trajectory)
    await emit(admin, seed_of("g", messages=[{"role": "user", "content": "2?"}]))
    event = (await everything(admin, Topic.SEEDS))[-1]
    again = Seed(
        id="resume", kind=SeedKind.RESUME, group="g", group_size=2, env="sums", asks=[Ask(member=0, attempt=2)],
        origin_seed="seed-g", origin_offset=event.offset, prefix=str(aborted.handle),
    )  # fmt: skip
    await emit(admin, again)
    environment, stop = Sums(), asyncio.Event()
    work = asyncio.create_task(
        run_worker(settings, environment, Digits(), stop=stop, grace_s=5.0, session_timeout_ms=2000)
    )
    await until(lambda: work.done() or any(one.prefix for one in environment.dispatched))
    stop.set()
    await work


async def bring(settings: Settings, admin: Settings) -> None:
    """Import whole files, one line of which is bad, and follow some."""
    folder = Path(tempfile.mkdtemp())
    try:
        shutil.copytree(demo_run(), folder / "run")
        for path in (folder / "run").rglob("*.jsonl"):
            path.write_text(_another(path.read_text()))
        bad = folder / "bad" / "results.jsonl"
        bad.parent.mkdir()
        bad.write_text('{"example_id": 1, "prompt": 3, "completion": 4}\n')
        await import_runs(settings, [folder / "run", bad])
        stop = asyncio.Event()
        await follow_runs(settings, [folder / "run"], stop=stop, group_size=4, watch=lambda step: stop.set())
    finally:
        shutil.rmtree(folder)


def _another(text: str) -> str:
    """Other rollouts, of other groups and other policies."""
    text = re.sub(r'"id":"([0-9a-f]{32})"', lambda found: f'"id":"{found[1][::-1]}"', text)
    return text.replace('"id":"00000000-', '"id":"10000000-').replace('"start":1,"end":2', '"start":7,"end":8')


async def buffer(settings: Settings, admin: Settings) -> None:
    """Fold all, emit seeds, reject and cancel; and fold the index anew."""
    await run_buffer(settings, drain=True, options=SHORT)
    await reindex(settings, options=SHORT)


async def train(settings: Settings, admin: Settings) -> None:
    """Train what is whole, reject what no policy sampled, publish weights; another process reads the rollouts."""
    if settings is not admin:
        await _group(admin, "now")
        changed = settings.trainer.model_copy(update={"min_survivors": 1, "readers": 1})
        settings = settings.model_copy(update={"trainer": changed})  # which it writes down as it starts
    async with GroupStream(settings) as stream:
        async for batch in stream.batches(drain=True):
            await stream.trained(batch, publish="memory://weights")


async def export(settings: Settings, admin: Settings) -> None:
    """Export, freeze a buffer and read it, draw its seeds again."""
    folder = Path(tempfile.mkdtemp())
    await export_rollouts(settings, folder / "out", "jsonl")
    with suppress(NotFound):  # an imported run has trained nothing
        await freeze(settings, folder / "step", Until(step=1))
    frozen = await freeze(settings, folder / "frozen", Until())
    await asyncio.to_thread(read_buffer, settings, frozen.manifest)
    await check_seeds(settings)
    shutil.rmtree(folder)


def read_buffer(settings: Settings, manifest: str) -> None:
    """As a training script does."""
    with ReplayBuffer.open(manifest, settings) as frozen:
        assert [item.place for item in frozen] == [*range(len(frozen))]


async def prove(settings: Settings, admin: Settings) -> None:
    """Audit."""
    await audit(settings)


async def clean(settings: Settings, admin: Settings) -> None:
    """Collect what a trainer has closed and a buffer has read; let go a pin that isn't there."""
    name = f"spent-{secrets.token_hex(4)}"
    await emit(admin, seed_of(name))
    async with RolloutProducer(admin) as producer:
        await producer.publish_many([sound(name, member, reward=float(member)) for member in range(2)])
    async with GroupStream(admin) as stream:
        async for batch in stream.batches(drain=True):
            await stream.trained(batch, publish="memory://weights")
    await run_buffer(admin, drain=True, options=SHORT)
    found = await collect(settings)
    assert {Topic.ROLLOUTS, Topic.SEEDS} <= {each.topic for each in found.kept if each.deleted}
    with pytest.raises(NotFound):
        await unpin(settings, "none")


async def mend(settings: Settings, admin: Settings) -> None:
    """Try a record again that is sound, whatever its dead letter says."""
    connection = connection_of(admin)
    async with RolloutProducer(admin) as producer:
        await producer.publish(sound(f"mended-{secrets.token_hex(4)}"))
    event = (await everything(admin, Topic.ROLLOUTS))[-1]
    async with Writer(connection) as writer:
        await writer.send(rejected_event(event, Rejected(RejectReason.SHAPE, "once"), source="/test", now=0))
    (retried,) = await retry(settings, LetterFilter(place=f"{Topic.ROLLOUTS}/{event.partition}/{event.offset}"))
    assert retried.outcome is Outcome.PUBLISHED


async def feed(settings: Settings, admin: Settings) -> None:
    """One group of each of two tasks."""
    source = TaskSource("sums", f"tasks-{secrets.token_hex(4)}", lambda: iter([{"key": "1"}, {"key": "2"}]))
    async with SeedFeeder(settings, source, epochs=1) as feeder:
        feeding = asyncio.create_task(feeder.run())
        await until(lambda: feeder.emitted == 2)
        feeder.stop()
        await feeding


async def look(settings: Settings, admin: Settings) -> None:
    """Everything that only looks."""
    await status(settings)
    await owners(await connect(settings, Role.PEOPLE))
    for rows in (groups_view(settings), candidate_rows(settings), seed_rows(settings)):
        _ = [row async for row in rows]
    for topic in Topic:
        _ = [event async for event in tail_events(settings, topic)]
    await read_one(await connect(settings, Role.PEOPLE, [Topic.RUN]), Topic.RUN, 0, 0)


WORK: dict[Role, tuple[str, Work]] = {
    Role.OPERATOR: (MADE, operate),
    Role.PRODUCERS: (LIVE, produce),
    Role.WORKERS: (LIVE, labour),
    Role.FEEDERS: (LIVE, feed),
    Role.TRAINER: (LIVE, train),
    Role.PUBLISHERS: (LIVE, publish),
    Role.IMPORTERS: (RECORDED, bring),
    Role.BUFFER: (RECORDED, buffer),
    Role.REPLAY: (RECORDED, export),
    Role.AUDIT: (RECORDED, prove),
    Role.RETRY: (LIVE, mend),
    Role.GC: (SPENT, clean),
    Role.PEOPLE: (RECORDED, look),
}
"""In this order: a publisher starts a timeline, on which the trainer would have nothing to train."""
