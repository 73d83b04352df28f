"""A start at the latest end of the log (design/trainer#latest)."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest

from rolloutlog.consumers.audit.auditor import audit
from rolloutlog.contract.errors import BrokerUnreachable, SettingsError, Starved
from rolloutlog.contract.events.event import annotation_event
from rolloutlog.contract.events.group_events import GroupFinal
from rolloutlog.contract.events.seeds import Seed
from rolloutlog.contract.ids import id_of
from rolloutlog.contract.policies import Policy
from rolloutlog.contract.topics import Topic
from rolloutlog.contract.vocabulary import DropReason, EventType, RunKind, Status
from rolloutlog.producers.feeding.fresh_groups import FreshGroups
from rolloutlog.trainer.dispatch_service import run_dispatch
from rolloutlog.trainer.stream import skipping
from rolloutlog.trainer.stream.group_stream import GroupStream
from rolloutlog.trainer.stream.starting import Start
from rolloutlog.trainer.stream.step_recorder import StepRecorder
from tests.producers.log import emit, seed_of
from tests.trainer.desk import ended, rollout
from tests.trainer.log import Log, now
from tests.trainer.test_cut_log import cut
from tests.trainer.test_starts import made, marks_of, steps
from tests.trainer.test_stream import drained, group, names

pytestmark = pytest.mark.broker
LATEST = Start(latest=True)


def asked(name: str, **facts: Any) -> Seed:
    return seed_of(id_of(name), **facts)


def skipped(finals: list[GroupFinal]) -> Counter[str]:
    return Counter(final.group for final in finals if final.reason is DropReason.SKIPPED)


async def open_fresh(log: Log) -> int:
    """How many groups a feeder counts for open."""
    groups = FreshGroups("sums", 1)
    for event in await log.read(Topic.SEEDS):
        groups.emitted(Seed.of(event), event.partition, event.offset)
    for final in await log.finals():
        groups.ended(final)
    return groups.count


async def test_what_is_open_at_the_end_is_skipped_once(log: Log) -> None:
    """Groups with records, those that were only asked for, and one of which only a note came; neither ended groups nor
    eval ones."""
    await log.write(*group("a"), *group("b"))
    async with GroupStream(log.settings) as stream:
        await drained(stream)
    await log.write(*group("whole"), rollout(0, 0, group=id_of("part")))
    await log.write(ended(rollout(1, 0, group=id_of("aborted")), Status.ABORTED))
    await log.write(*(rollout(i, 0, group=id_of("eval"), kind=RunKind.EVAL) for i in range(2)))
    noted = rollout(1, 0, group=id_of("noted"), size=3).slot
    await log.write(annotation_event(noted, {"reward": 1.0}, source="/test", now=now()))
    await emit(log.settings, asked("a"), asked("part"), asked("unseen"), asked("looked-at", run_kind=RunKind.EVAL))
    wanted = Counter(id_of(name) for name in ("whole", "part", "aborted", "unseen", "noted"))
    for _ in range(2):
        async with GroupStream(log.settings, LATEST) as stream:
            assert stream.step == 2
            assert all(not assembly.groups for assembly in stream._parts.intake.assemblies.values())
        assert skipped(await log.finals()) == wanted
    assert await open_fresh(log) == 0
    await log.write(rollout(1, 0, group=id_of("part")), *group("c"), *group("d"))
    async with GroupStream(log.settings) as stream:
        assert [names(batch) for batch in await drained(stream)] == [{id_of("c"), id_of("d")}]
    assert (await audit(log.settings)).ok
    assert [final.group_size for final in await log.finals() if final.group == noted.group] == [3]
    whole = next(final for final in await log.finals() if final.group == id_of("whole"))
    assert [(m.status, m.handle is not None, m.response_tokens) for m in whole.members] == [("completed", True, 2)] * 2


async def test_a_start_that_dies_amid_its_events_leaves_the_rest_to_the_next(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    await log.bring(0)
    await log.write(*(record for name in "abc" for record in group(name)))
    await emit(log.settings, asked("unseen"))
    write, left = StepRecorder.write_notes, [2]

    async def dying(recorder: StepRecorder) -> None:
        if not left[0]:
            raise BrokerUnreachable("away")
        left[0] -= 1
        await write(recorder)

    monkeypatch.setattr(skipping, "AT_ONCE", 1)
    monkeypatch.setattr(StepRecorder, "write_notes", dying)
    with pytest.raises(BrokerUnreachable):
        async with GroupStream(log.settings, LATEST):
            pass
    assert len(skipped(await log.finals())) == 2
    left[0] = 99
    async with GroupStream(log.settings, LATEST) as stream:
        assert not await drained(stream)
    assert skipped(await log.finals()) == Counter(id_of(name) for name in ("a", "b", "c", "unseen"))


async def test_the_watermarks_of_the_next_step_are_above_what_was_skipped(log: Log) -> None:
    log = await made(log.settings.model_copy(update={"namespace": f"{log.settings.namespace}-own"}))
    async with GroupStream(log.settings) as stream:
        await steps(stream, log, 1)
    await log.write(rollout(0, 1, group=id_of("slow")))
    await emit(log.settings, asked("unseen"))
    async with GroupStream(log.settings, LATEST) as stream:
        await steps(stream, log, 2)
    mark = (await marks_of(log)).partitions[0]
    assert (mark.low, mark.first, mark.seeds) == (5, None, 1)


async def test_a_resume_may_skip_what_its_timeline_makes_void(log: Log) -> None:
    log = await made(log.settings.model_copy(update={"namespace": f"{log.settings.namespace}-own"}))
    async with GroupStream(log.settings) as stream:
        await steps(stream, log, 1, checkpoint=True)
        await steps(stream, log, 2)
    async with GroupStream(log.settings, Start(resume="checkpoint", latest=True)) as stream:
        assert (stream.history.current, stream.step) == (Policy(1, 1), 2)
        assert not await drained(stream)
    finals = [f for f in await log.finals() if f.group == id_of("g2")]
    assert [(f.timeline, f.step, f.reason) for f in finals] == [(0, 2, None), (1, 2, DropReason.SKIPPED)]


async def test_records_that_were_deleted_under_open_groups_are_no_matter(log: Log) -> None:
    log = await made(log.settings.model_copy(update={"namespace": f"{log.settings.namespace}-own"}))
    async with GroupStream(log.settings) as stream:
        await log.write(rollout(0, 0, group=id_of("torn"), size=3), rollout(1, 0, group=id_of("torn"), size=3))
        await steps(stream, log, 1)
    await cut(log.connection, Topic.ROLLOUTS, 1)
    async with GroupStream(log.settings, LATEST) as stream:
        await log.write(*group("g2", 1))
        assert [names(batch) for batch in await drained(stream)] == [{id_of("g2")}]
    assert skipped(await log.finals()) == Counter([id_of("torn")])


def test_the_dispatch_service_skips_too_once_a_policy_is_known(log: Log) -> None:
    asyncio.run(log.write(*group("a"), *group("b")))
    with pytest.raises(Starved, match="no policy was ever published"):
        asyncio.run(run_dispatch(log.settings, latest=True, drain=True))
    dead = asyncio.run(log.read(Topic.DEAD_LETTERS))
    assert not [event for event in dead if event.headers.type == EventType.RECORD_REJECTED], "nobody judged a record"
    asyncio.run(log.bring(0))
    assert asyncio.run(run_dispatch(log.settings, latest=True, drain=True)).groups == 0
    assert skipped(asyncio.run(log.finals())) == Counter([id_of("a"), id_of("b")])


def test_a_start_is_at_the_end_or_at_offsets() -> None:
    with pytest.raises(SettingsError, match="not both"):
        Start(latest=True, offsets={0: 3})
