"""Garbage collection on a real broker: what is deleted was counted, and everything goes on (design/log#seals)."""

from __future__ import annotations

import asyncio
import secrets

import pytest

from rolloutlog.broker import EmbeddedKafka
from rolloutlog.consumers.audit.auditor import Audit, audit
from rolloutlog.consumers.buffer_service import run_buffer
from rolloutlog.consumers.collecting.collected import Collected
from rolloutlog.consumers.collecting.gc_service import Options, collect
from rolloutlog.consumers.views.run_status import status
from rolloutlog.contract.ids import id_of
from rolloutlog.contract.settings import Settings
from rolloutlog.contract.topics import Topic
from rolloutlog.kafka.loop.loop_options import LoopOptions
from rolloutlog.kafka.read.ends import ends
from rolloutlog.trainer.stream.group_stream import GroupStream
from tests.trainer.desk import rollout
from tests.trainer.log import Log

pytestmark = pytest.mark.broker
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
