"""Garbage collection on a real broker: what is deleted was counted, and everything goes on (design/log#seals)."""

from __future__ import annotations

import asyncio
import secrets
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from rolloutlog.broker import EmbeddedKafka
from rolloutlog.consumers.audit.auditor import Audit, audit
from rolloutlog.consumers.buffer_service import run_buffer
from rolloutlog.consumers.collecting import gc_service
from rolloutlog.consumers.collecting.collected import Collected
from rolloutlog.consumers.collecting.gc_service import Options, collect, unpin
from rolloutlog.consumers.replaying import freezing
from rolloutlog.consumers.replaying.freezing import freeze
from rolloutlog.consumers.replaying.horizons import Until
from rolloutlog.consumers.replaying.replay_buffer import ReplayBuffer
from rolloutlog.consumers.views.run_status import status
from rolloutlog.contract.errors import Fenced, NotFound, RecordsDeleted
from rolloutlog.contract.events.group_events import final_event
from rolloutlog.contract.events.run import fact
from rolloutlog.contract.ids import id_of
from rolloutlog.contract.partitions import partition_of
from rolloutlog.contract.policies import Policy
from rolloutlog.contract.settings import Settings
from rolloutlog.contract.topics import Topic
from rolloutlog.contract.vocabulary import EventType
from rolloutlog.kafka.loop.loop_options import LoopOptions
from rolloutlog.kafka.read.ends import ends
from rolloutlog.producers.policy_publisher import PolicyPublisher
from rolloutlog.trainer.stream.group_stream import GroupStream
from rolloutlog.trainer.stream.starting import Start
from tests.cases.rollouts import sound
from tests.producers.log import emit, seed_of
from tests.producers.test_seed_leases import take, worker
from tests.trainer.desk import rollout
from tests.trainer.log import Log, now

pytestmark = pytest.mark.broker
PROCESS = Path(__file__).with_name("gc_process.py")
SHORT = LoopOptions(session_timeout_ms=2000)


@pytest.fixture
def log(kafka_broker: EmbeddedKafka) -> Log:
    """A run of two partitions, a group a step, that derives nothing."""
    settings = Settings.model_validate(
        {
            "namespace": f"gc-{secrets.token_hex(4)}",
            "bootstrap_servers": kafka_broker.bootstrap_servers,
            "topics": {"partitions": 2},
            "buffer": {"derivations": []},
            "trainer": {"batch_groups": 1, "starve_s": 60, "staleness": {"max_staleness": 8}},
        }
    )
    made = Log(settings)
    asyncio.run(made.create())
    return made


async def write_groups(log: Log, *names: str, members: int = 2) -> None:
    await log.write(*(rollout(m, 0, group=id_of(name), seed=None) for name in names for m in range(members)))


async def train(log: Log, steps: int) -> None:
    """Steps of a group each."""
    async with GroupStream(log.settings) as stream:
        batches = stream.batches()
        for _ in range(steps):
            await stream.trained(await anext(batches))


async def firsts(log: Log, topic: Topic = Topic.ROLLOUTS) -> list[int]:
    return [end.first for end in (await ends(log.connection, [topic])).values()]


def facts(found: Audit) -> tuple[object, ...]:
    return found.counts, found.violations, found.ok


async def collected(log: Log) -> Collected:
    found = await collect(log.settings)
    assert found.ignored == []
    return found


async def test_what_is_deleted_is_counted_and_the_audit_goes_on(log: Log) -> None:
    await write_groups(log, *"abcdef")
    await train(log, 4)
    await run_buffer(log.settings, drain=True, options=SHORT)
    before = await audit(log.settings)
    assert (before.ok, before.counts.terms["trained"], before.counts.terms["pending"]) == (True, 8, 4)

    planned = await collect(log.settings, Options(dry_run=True))
    assert (await firsts(log), (await audit(log.settings)).sealed) == ([0, 0], 0)
    found = await collected(log)
    assert [each.offset for each in found.kept] == [each.offset for each in planned.kept]
    assert found.sealed == 8 == sum(await firsts(log))
    after = await audit(log.settings)
    assert facts(after) == facts(before)
    assert after.sealed == 8

    again = await collected(log)
    assert sum(each.deleted for each in again.kept) == 0
    await run_buffer(log.settings, drain=True, options=SHORT)
    await write_groups(log, "g")
    await train(log, 3)
    await run_buffer(log.settings, drain=True, options=SHORT)
    last = await collected(log)
    assert last.sealed == 14
    ended = await audit(log.settings)
    assert (ended.ok, ended.counts.terms["trained"], ended.sealed) == (True, 14, 14)
    assert (await status(log.settings))["groups"]["ended"] == 7


def test_a_collection_that_is_killed_between_seal_and_deletion_costs_nothing(log: Log) -> None:
    asyncio.run(write_groups(log, *"abcd"))
    asyncio.run(train(log, 3))
    asyncio.run(run_buffer(log.settings, drain=True, options=SHORT))
    before = asyncio.run(audit(log.settings))
    command = [sys.executable, str(PROCESS), log.settings.model_dump_json()]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline().strip() == "sealed"
        process.kill()
    between = asyncio.run(audit(log.settings))
    assert (asyncio.run(firsts(log)), between.sealed) == ([0, 0], 6)
    assert facts(between) == facts(before)
    found = asyncio.run(collected(log))
    assert found.sealed == 6 == sum(asyncio.run(firsts(log)))
    assert facts(asyncio.run(audit(log.settings))) == facts(before)


async def test_a_second_collection_fences_the_first_before_it_has_sealed(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    await write_groups(log, *"ab")
    await train(log, 2)
    await run_buffer(log.settings, drain=True, options=SHORT)
    plan, plans = gc_service._planned, list[object]()

    async def planned(*given: Any) -> Any:
        plans.append(given)
        found = await plan(*given)
        if len(plans) == 1:
            assert (await collect(log.settings)).sealed == 4
        return found

    monkeypatch.setattr(gc_service, "_planned", planned)
    with pytest.raises(Fenced):
        await collect(log.settings)
    assert (await audit(log.settings)).ok


async def test_nothing_is_deleted_where_no_trainer_has_closed_a_step(log: Log) -> None:
    await write_groups(log, *"ab")
    await run_buffer(log.settings, drain=True, options=SHORT)
    found = await collected(log)
    assert {(each.why, each.deleted) for each in found.kept} == {("no trainer has closed a step", 0)}
    assert found.sealed == 0


async def test_a_violation_holds_the_records_that_it_is_about(log: Log) -> None:
    await write_groups(log, *"ab")
    await train(log, 2)
    await run_buffer(log.settings, drain=True, options=SHORT)
    (final, *_) = await log.finals()
    where = partition_of(final.group, 2)
    wrong = next(id_of(n) for n in range(99) if partition_of(id_of(n), 2) == where)
    await log.write(final_event(final.model_copy(update={"group": wrong}), source="/test", now=now()))
    before = await audit(log.settings)
    assert [found.kind for found in before.violations] == ["handle-of-another-group"] * 2
    await collected(log)
    assert (await firsts(log))[where] == 0
    await collect(log.settings, Options(with_violations=True))
    after = await audit(log.settings)
    assert (await firsts(log))[where] > 0
    assert facts(after) == facts(before)


SEAL = {"partition": 0, "partitions": 2, "rollouts": 1, "seeds": 0, "timeline": 0, "step": 0}


@pytest.mark.parametrize(
    "body",
    [
        {"partition": 0},
        SEAL | {"partitions": 6},
        {
            "partition": 0,
            "partitions": 2,
            "rollouts": 1,
            "seeds": 0,
            "timeline": 0,
            "step": 0,
            "terms": {"trained": -4},
        },
        SEAL | {"rollouts": 1 << 40},
        SEAL | {"timeline": 7},
    ],
)
async def test_a_seal_that_cant_be_leaves_the_audit_undecided_and_everything_where_it_is(
    log: Log, body: dict[str, Any]
) -> None:
    await write_groups(log, *"abcd")
    await train(log, 4)
    await log.write(
        fact(EventType.AUDIT_SEALED, "audit/0", body, "/test", now()),
        fact(EventType.MANIFEST_PINNED, "manifest/junk", {"manifest": "junk", "rollouts": {"0": -1}}, "/test", now()),
    )
    found = await audit(log.settings)
    assert (found.ok, found.counts.terms["trained"], len(found.unusable)) == (None, 8, 1)
    done = await collect(log.settings)
    assert len(done.ignored) == 2
    whys = {(each.partition, each.why) for each in done.kept if each.topic is not Topic.ROLLOUT_INDEX}
    assert (0, "its seal can't be used") in whys
    assert (await firsts(log))[0] == 0
    assert (await audit(log.settings)).ok is None


@pytest.fixture
def deriving(log: Log) -> Log:
    """The same, but that it keeps its newest candidates."""
    changed = log.settings.model_dump(mode="json", exclude={"buffer"})
    changed |= {"namespace": f"gc-{secrets.token_hex(4)}", "buffer": {"capacity": 4, "ratio": 0}}
    made = Log(Settings.model_validate(changed | {"topics": {"partitions": 1}}))
    asyncio.run(made.create())
    asyncio.run(published(made))
    return made


async def published(log: Log) -> None:
    async with PolicyPublisher(log.settings) as policies:
        await policies.publish(1)


async def go_on(log: Log, *names: str) -> Collected:
    """Groups that are asked for, made, trained and folded; then a collection."""
    await emit(log.settings, *(seed_of(name) for name in names))
    await log.write(*(sound(name, m, reward=float(m), origin_seed=f"seed-{name}") for name in names for m in range(2)))
    await run_buffer(log.settings, drain=True, options=SHORT)
    await train(log, len(names))
    await run_buffer(log.settings, drain=True, options=SHORT)
    return await collected(log)


def whys(found: Collected) -> dict[Topic, str]:
    return {each.topic: each.why for each in found.kept}


def test_sources_and_frozen_buffers_hold_their_records(deriving: Log, tmp_path: Path) -> None:
    log = deriving
    found = asyncio.run(go_on(log, *"abcd"))
    assert whys(found)[Topic.ROLLOUTS] == "the oldest source in the buffer"
    source = asyncio.run(firsts(log))[0]
    assert source > 0
    frozen = asyncio.run(freeze(log.settings, tmp_path / "frozen", Until()))
    assert frozen.pinned
    found = asyncio.run(go_on(log, *"efgh"))
    assert whys(found)[Topic.ROLLOUTS] == f"the manifest {frozen.digest[:16]}"
    assert asyncio.run(firsts(log)) == [source]

    def read() -> int:
        with ReplayBuffer.open(frozen.manifest, log.settings) as buffer:
            return len([*buffer])

    assert read() == frozen.candidates == 4
    with pytest.raises(NotFound, match=frozen.digest[:16]):
        asyncio.run(unpin(log.settings, "nothing"))
    assert asyncio.run(unpin(log.settings, frozen.digest[:9])) == frozen.digest
    found = asyncio.run(collected(log))
    assert whys(found)[Topic.ROLLOUTS] == "the oldest source in the buffer"
    assert asyncio.run(firsts(log))[0] > source
    with pytest.raises(NotFound, match="isn't on the log any more"):
        read()
    assert asyncio.run(audit(log.settings)).ok


async def test_a_buffer_that_is_frozen_while_it_is_collected_is_refused(
    deriving: Log, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await go_on(deriving, *"abcd")
    pinned = freezing.pin_manifest

    async def late(*given: Any) -> None:
        await go_on(deriving, *"efgh")
        await pinned(*given)

    monkeypatch.setattr(freezing, "pin_manifest", late)
    with pytest.raises(NotFound, match="is collected up to"):
        await freeze(deriving.settings, tmp_path / "frozen", Until())
    assert not (tmp_path / "frozen").exists()


async def test_a_new_worker_takes_what_is_open_after_a_collection(deriving: Log) -> None:
    await go_on(deriving, *"ab")
    await emit(deriving.settings, seed_of("open"))
    await run_buffer(deriving.settings, drain=True, options=SHORT)
    found = await go_on(deriving, *"cd")
    first = (await deriving.read(Topic.SEEDS))[0]
    assert (first.offset > 0, first.headers.group) == (True, "open"), found
    async with worker(deriving.settings, "one") as first:
        (held,) = await take(first, 1)
    assert held.seed.group == "open"


async def checkpoints(log: Log, *names: str) -> None:
    """A group a step, each with a checkpoint."""
    async with GroupStream(log.settings) as stream:
        for name in names:
            await write_groups(log, name)
            batch = await anext(stream.batches())
            await stream.trained(batch, publish=f"s3://{name}", checkpoint=f"file:///{name}")


async def test_a_resume_reaches_the_checkpoints_that_were_kept_and_no_further(log: Log) -> None:
    await checkpoints(log, *"abcde")
    await run_buffer(log.settings, drain=True, options=SHORT)
    found = await collected(log)
    assert found.sealed == 8, "what the checkpoint after the fourth step needs is kept"
    gone = "|".join(id_of(name) for name in "cd")
    with pytest.raises(RecordsDeleted, match=f"up to step 4 of timeline 0.*({gone})"):
        async with GroupStream(log.settings, Start(resume=Policy(0, 2))):
            pass
    assert (await audit(log.settings)).ok, "nothing of it was written"
    async with GroupStream(log.settings, Start(resume=Policy(0, 4))) as stream:
        assert [group.id for group in await anext(stream.batches())] == [id_of("e")]
    after = await audit(log.settings)
    assert (after.ok, after.sealed, after.counts.terms["pending"]) == (True, 8, 2)


async def test_a_resume_while_it_is_collected_leaves_everything_where_it_is(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    await checkpoints(log, *"abcde")
    await run_buffer(log.settings, drain=True, options=SHORT)
    plan = gc_service._planned

    async def planned(*given: Any) -> Any:
        found = await plan(*given)
        async with GroupStream(log.settings, Start(resume=Policy(0, 2))):
            return found

    monkeypatch.setattr(gc_service, "_planned", planned)
    with pytest.raises(Fenced, match="gone back to before step 4"):
        await collect(log.settings)
    assert await firsts(log) == [0, 0]
    assert (await audit(log.settings)).ok is None
