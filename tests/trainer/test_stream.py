"""`GroupStream` on a real broker (design/trainer#stream)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from rolloutlog.contract.errors import Fenced, SettingsError, Starved, UnknownPolicy
from rolloutlog.contract.events.event import rollout_event, time_text
from rolloutlog.contract.events.group_events import GroupFinal
from rolloutlog.contract.ids import id_of
from rolloutlog.contract.partitions import partition_of
from rolloutlog.contract.policies import Policy
from rolloutlog.contract.record.rollout import Rollout
from rolloutlog.contract.settings import Settings
from rolloutlog.contract.topics import Topic
from rolloutlog.contract.vocabulary import DropReason, EventType, Verdict
from rolloutlog.kafka.read.policy_log import find_published
from rolloutlog.kafka.run_record import read_run
from rolloutlog.trainer.dispatch.batch import Batch
from rolloutlog.trainer.stream.group_stream import GroupStream
from rolloutlog.trainer.stream.starting import Start
from tests.trainer.desk import rollout
from tests.trainer.log import Log, now

pytestmark = pytest.mark.broker


def with_trainer(settings: Settings, **changes: Any) -> Settings:
    return Settings.model_validate(settings.model_dump() | {"trainer": settings.trainer.model_dump() | changes})


def group(name: str, versions: int = 0, **slot: Any) -> list[Rollout]:
    return [rollout(i, versions, group=id_of(name), **slot) for i in range(2)]


def names(batch: Batch) -> set[str]:
    return {found.id for found in batch.groups}


async def drained(stream: GroupStream) -> list[Batch]:
    """Batches to the end, each told as trained."""
    batches: list[Batch] = []
    async for batch in stream.batches(drain=True):
        await stream.trained(batch)
        batches.append(batch)
    return batches


async def test_a_first_start_publishes_its_timeline_and_version_zero(log: Log) -> None:
    """Both in one transaction, and a second start goes on with that timeline (design/trainer#timelines)."""
    async with GroupStream(log.settings, Start(weights="s3://weights/0")) as stream:
        assert (stream.history.current, stream.step) == (Policy(0, 0), 1)
    async with GroupStream(log.settings) as stream:
        assert (stream.history.current, stream.step) == (Policy(0, 0), 1)
    types = [event.headers.type for event in await log.read(Topic.POLICY_VERSIONS)]
    assert types == [EventType.TIMELINE_STARTED, EventType.POLICY_PUBLISHED]


async def test_a_start_at_a_step_that_is_on_the_log_is_refused(log: Log) -> None:
    """It would publish the policy of that step a second time, with other weights under the same name."""
    async with GroupStream(log.settings) as stream:
        await log.write(*group("a"), *group("b"))
        await stream.trained(await anext(stream.batches()), publish="s3://w/1")
    for step in (0, 1):
        with pytest.raises(SettingsError, match=f"a start at step {step}, but the last on the log is 1"):
            async with GroupStream(log.settings, Start(step=step)):
                pass
    async with GroupStream(log.settings, Start(step=4)) as stream:
        assert stream.step == 4


async def test_a_start_from_an_older_policy_voids_the_steps_after_it(log: Log) -> None:
    """The next timeline (design/trainer#timelines) begins with that policy's weights, and what later steps trained is
    drawn again
    at the steps of the new one, each group once."""
    settings = with_trainer(log.settings, batch_groups=1)
    async with GroupStream(settings, Start(weights="s3://w/0", digest="d0")) as stream:
        for step in (1, 2):
            await log.write(*group(f"g{step}", step - 1))
            batch = await anext(stream.batches())
            await stream.trained(batch, publish=f"s3://w/{step}", digest=f"d{step}")
    async with GroupStream(settings, Start(resume=Policy(0, 1))) as stream:
        assert (stream.history.current, stream.step) == (Policy(1, 1), 2)
        weights = await find_published(log.connection, Policy(1, 1))
        assert (weights.uri, weights.digest) == ("s3://w/1", "d1"), "those of the policy that it goes on from"
        assert [names(batch) for batch in await drained(stream)] == [{id_of("g2")}]
    finals = [(final.timeline, final.step, final.group) for final in await log.finals()]
    assert sorted(finals) == [(0, 1, id_of("g1")), (0, 2, id_of("g2")), (1, 2, id_of("g2"))]
    with pytest.raises(UnknownPolicy, match="0:9"):
        async with GroupStream(settings, Start(resume=Policy(0, 9))):
            pass


async def test_whole_groups_are_yielded_step_by_step_and_recorded_with_the_policy(log: Log) -> None:
    async with GroupStream(log.settings) as stream:
        await log.write(*group("a"), *group("b"), *group("c")[:1])
        batches = stream.batches()
        batch = await anext(batches)
        assert (batch.step, names(batch), batch.short) == (1, {id_of("a"), id_of("b")}, False)
        assert [m.rollout.trajectory.token_ids.tolist() for m in batch.members if m.rollout] == [[1, 2, 10, 11]] * 4
        report = await stream.trained(batch, publish="s3://weights/1")
        assert (report.groups, report.members, report.trainable_tokens) == (2, 4, 8)
        assert stream.history.current == Policy(0, 1)
        await log.write(group("c")[1], *group("d", 1))
        batch = await anext(batches)
        assert (batch.step, names(batch)) == (2, {id_of("c"), id_of("d")})
        await stream.trained(batch)
        await batches.aclose()
    finals = {final.group: final for final in await log.finals()}
    assert {finals[id_of(name)].step for name in "ab"} == {1}
    assert {finals[id_of(name)].step for name in "cd"} == {2}
    assert all(final.reason is None and final.masks for final in finals.values())
    policies = [event.headers.policy for event in await log.read(Topic.POLICY_VERSIONS)]
    assert policies == [None, Policy(0, 0), Policy(0, 1)]


async def test_a_dropped_group_gives_up_its_place_while_records_keep_coming(log: Log) -> None:
    """An end on the log is what lets the next group begin, and workers that are busy never leave a pause
    (design/trainer#steps)."""
    async with GroupStream(with_trainer(log.settings, batch_groups=2)) as stream:
        waiting = asyncio.create_task(anext(stream.batches()))
        await log.write(*(rollout(i, 0, reward=1.0, group=id_of("same")) for i in range(2)))
        ends = list[GroupFinal]()
        for number in range(60):
            await log.write(rollout(0, 0, group=id_of("open", number)))
            if ends := await log.finals():
                break
        assert [(one.group, one.reason) for one in ends] == [(id_of("same"), DropReason.ZERO_VARIANCE)]
        assert not waiting.done()
        waiting.cancel()


async def test_a_rest_below_a_batch_is_drawn_once_nothing_comes_and_no_group_lacks_a_member(log: Log) -> None:
    """As at the end of the data (design/trainer#steps); without `short_after_s` it waits on."""
    async with GroupStream(with_trainer(log.settings, batch_groups=8)) as stream:
        batches = stream.batches(short_after_s=0.6)
        await log.write(*group("a"), group("b")[0])
        waiting = asyncio.ensure_future(anext(batches))
        await asyncio.wait({waiting}, timeout=2.5)
        assert not waiting.done()
        await log.write(group("b")[1])
        batch = await asyncio.wait_for(waiting, 30)
        assert (names(batch), batch.short) == ({id_of("a"), id_of("b")}, True)
        await stream.trained(batch)
        await batches.aclose()


async def test_what_was_trained_is_never_yielded_again(log: Log) -> None:
    """Exactly once over restarts; what was drawn and not told is drawn again (decisions/staleness#121)."""
    await log.bring(0)
    await log.write(*(r for name in "abcdef" for r in group(name)))
    async with GroupStream(log.settings) as stream:
        first = await anext(stream.batches())
        await stream.trained(first)
        with pytest.raises(ValueError, match="recorded before"):
            await stream.trained(first)
        lost = await anext(stream.batches())
    async with GroupStream(log.settings) as stream:
        rest = await drained(stream)
    again = set().union(*map(names, rest))
    assert names(lost) <= again
    assert names(first) | again == {id_of(name) for name in "abcdef"}
    assert not names(first) & again
    assert sorted(final.group for final in await log.finals()) == sorted(id_of(name) for name in "abcdef")


async def test_imported_policies_start_no_timeline_and_each_group_has_its_own_step(log: Log) -> None:
    """A group is judged at its newest version + 1 (design/trainer#imported)."""
    await log.bring(3, 7)
    await log.write(*group("young", 7, seed=None), *group("old", 3, seed=None), *group("last", 3, seed=None))
    async with GroupStream(log.settings) as stream:
        assert stream.step is None
        batches = await drained(stream)
        with pytest.raises(SettingsError, match="imported"):
            await stream.trained(Batch(8, ()), publish="s3://weights/8")
    assert [names(batch) for batch in batches] == [{id_of("old"), id_of("last")}, {id_of("young")}]
    assert [batch.short for batch in batches] == [False, True]
    steps = {final.group: final.step for final in await log.finals()}
    assert steps == {id_of("young"): 8, id_of("old"): 4, id_of("last"): 4}
    types = {event.headers.type for event in await log.read(Topic.POLICY_VERSIONS)}
    assert types == {EventType.POLICY_IMPORTED}


async def test_an_expired_member_is_on_the_log_before_the_stream_waits_and_its_next_attempt_trains(log: Log) -> None:
    """`member.expired` goes into a transaction of its own before the trainer waits (design/trainer#steps)."""
    async with GroupStream(log.settings, Start(step=5)) as stream:
        await log.publish(*(Policy(0, v) for v in range(1, 5)))
        await log.write(rollout(0, 0, group=id_of("a")), rollout(1, 4, group=id_of("a")))
        batches = stream.batches(1)
        waiting = asyncio.ensure_future(anext(batches))
        while not (gone := await log.expired()):
            assert not waiting.done()
        assert [(m.member, m.attempt, m.step, m.tries, m.verdict) for m in gone] == [(0, 1, 5, 1, Verdict.EXPIRED)]
        await log.write(rollout(0, 4, group=id_of("a"), attempt=2))
        batch = await waiting
        assert [(m.member, m.attempt) for m in batch.members] == [(0, 2), (1, 1)]
        await stream.trained(batch)
        await batches.aclose()
    (final,) = await log.finals()
    assert [(m.attempt, m.verdict) for m in final.members] == [(2, Verdict.FRESH), (1, Verdict.FRESH)]


async def test_an_expired_attempt_stays_expired_after_a_restart(log: Log) -> None:
    async with GroupStream(log.settings, Start(step=5)) as stream:
        await log.publish(Policy(0, 4))
        await log.write(rollout(0, 0, group=id_of("a")), rollout(1, 4, group=id_of("a")))
        assert await drained(stream) == []
    async with GroupStream(log.settings, Start(step=1)) as stream:
        assert await drained(stream) == []
    assert [(m.member, m.attempt) for m in await log.expired()] == [(0, 1)]


async def test_dropped_groups_are_on_the_log_with_the_step_and_their_lengths(log: Log) -> None:
    """A discard is never silent (decisions/staleness#78 and #107)."""
    await log.bring(0, 9)
    equal = [rollout(i, 9, group=id_of("equal"), reward=1.0) for i in range(2)]
    old = [rollout(i, [0, 9], group=id_of("old"), seed=None) for i in range(2)]
    await log.write(*equal, *old, *group("good", 9))
    async with GroupStream(log.settings) as stream:
        async for batch in stream.batches(drain=True):
            report = await stream.trained(batch)
            assert report.dropped == {"zero-variance": 1, "no-seed": 1}
            assert report.dropped_tokens == 8
    reasons = {final.group: final.reason for final in await log.finals()}
    assert reasons == {
        id_of("equal"): DropReason.ZERO_VARIANCE, id_of("old"): DropReason.NO_SEED, id_of("good"): None,
    }  # fmt: skip


async def test_a_second_trainer_fences_the_first(log: Log) -> None:
    """The first stops with a clear error, and nothing of its step is on the log (design/trainer#one-trainer)."""
    await log.bring(0)
    await log.write(*group("a"), *group("b"))
    async with GroupStream(log.settings) as first:
        batch = await anext(first.batches())
        async with GroupStream(log.settings) as second:
            (taken,) = await drained(second)
        with pytest.raises(Fenced, match="another trainer has started"):
            await first.trained(batch)
    assert names(taken) == names(batch)
    assert len(await log.finals()) == 2


async def test_a_policy_is_unknown_only_after_the_topic_was_read_to_its_end(log: Log) -> None:
    """A policy published just before its rollouts is found; one that never was ends its slot
    (design/record#never-published)."""
    async with GroupStream(log.settings, Start(step=2)) as stream:
        await log.publish(Policy(0, 1))
        await log.write(*group("known", 1), *group("stray", 99), *group("good", 0))
        (batch,) = await drained(stream)
        assert names(batch) == {id_of("known"), id_of("good")}
    (dropped,) = [final for final in await log.finals() if final.reason]
    assert (dropped.group, dropped.reason) == (id_of("stray"), DropReason.SURVIVORS)
    assert [m.handle for m in dropped.members] == [None, None]
    letters = await log.read(Topic.DEAD_LETTERS)
    assert [event.headers.reason for event in letters] == ["policy-unknown"] * 2
    await log.publish(Policy(0, 99))
    async with GroupStream(log.settings, Start(step=3)) as stream:
        assert await drained(stream) == []
    assert len(await log.read(Topic.DEAD_LETTERS)) == 2


async def test_a_record_that_was_rejected_stays_rejected_after_a_restart(log: Log) -> None:
    """What a dead letter says is true for good, also when its policy is published later."""
    async with GroupStream(log.settings, Start(step=100)) as stream:
        await log.write(rollout(0, 99, group=id_of("stray"), size=3))
        assert await drained(stream) == []
    await log.publish(Policy(0, 99))
    await log.write(*(rollout(i, 99, group=id_of("stray"), size=3) for i in (1, 2)))
    async with GroupStream(log.settings, Start(step=100)) as stream:
        (batch,) = await drained(stream)
    assert [m.member for m in batch.members] == [1, 2]
    (final,) = await log.finals()
    assert final.members[0].status == "failed"
    assert len(await log.read(Topic.DEAD_LETTERS)) == 1


async def test_a_starved_trainer_says_who_is_late(log: Log) -> None:
    """Group, partition, offset and lag (design/trainer#starvation)."""
    await log.bring(0)
    settings = with_trainer(log.settings, starve_s=1.0)
    with pytest.raises(Starved, match=r"0 of 2 groups are ready; no group is on the log.*partitions 0 at offset"):
        async with GroupStream(settings) as stream:
            await anext(stream.batches())
    await log.write(group("a")[1])
    said = rf"group {id_of('a')} on partition \d, read up to offset 1 \(lag 0\), waits for member 0 \(open\)"
    with pytest.raises(Starved, match=said):
        async with GroupStream(settings) as stream:
            await anext(stream.batches())


async def test_held_groups_are_never_drawn_early(log: Log) -> None:
    async with GroupStream(with_trainer(log.settings, starve_s=1.0), Start(step=1)) as stream:
        await log.publish(Policy(0, 3))
        await log.write(*group("early", 3), *group("now"), *group("then"))
        batches = stream.batches()
        batch = await anext(batches)
        assert names(batch) == {id_of("now"), id_of("then")}
        await stream.trained(batch)
        with pytest.raises(Starved, match="is held for a later step"):
            await anext(batches)


async def test_a_trainer_with_fewer_groups_than_a_batch_says_so(log: Log) -> None:
    async with GroupStream(with_trainer(log.settings, starve_s=1.0), Start(step=1)) as stream:
        await log.write(*group("only"))
        with pytest.raises(Starved, match="1 of 2 groups are ready; no other group is on the log") as told:
            await anext(stream.batches())
        assert "trainer.batch_groups" in told.value.hint


async def test_a_trainer_may_start_with_other_settings_and_every_final_names_those_that_judged_it(log: Log) -> None:
    """Staleness, B and filters change at a start; topics and buffer never do (design/log#settings)."""
    other = with_trainer(log.settings, min_survivors=1, staleness={"max_staleness": "none"})
    starts = {"a": log.settings, "b": other, "c": log.settings, "d": log.settings}
    for step, (name, settings) in enumerate(starts.items(), 1):
        async with GroupStream(settings, Start(step=step)) as stream:
            await log.publish(Policy(0, step))
            await log.write(*group(name, step - 1))
            await drained(stream)
    judged = {final.group: final.settings for final in await log.finals()}
    assert judged == {id_of(name): settings.trainer.digest for name, settings in starts.items()}
    record = await read_run(await log.at_rest(Topic.RUN))
    assert record.trainer_settings(other.trainer.digest) == other.trainer.model_copy(update={"starve_s": 300.0})
    recorded = [event.headers.type for event in await log.read(Topic.RUN)]
    assert recorded.count(EventType.SETTINGS_RECORDED) == 4, "the run's, the trainer's, another, and back again"


async def test_a_deadline_passes_on_a_silent_partition(log: Log) -> None:
    """The monotonic clock wakes it (design/log#time)."""
    await log.bring(0)
    settings = with_trainer(log.settings, straggler={"type": "deadline", "seconds": 2, "k": 2})
    await log.write(*(rollout(i, 0, group=id_of("a"), size=3) for i in range(2)))
    async with GroupStream(settings) as stream:
        batch = await anext(stream.batches(1))
        await stream.trained(batch)
    (final,) = await log.finals()
    assert [m.status for m in final.members] == ["completed", "completed", "open"]


async def test_deadlines_run_on_the_brokers_clock(log: Log) -> None:
    """One record dated 50 minutes ahead ended all deadlines of its partition (design/log#time); its own time stays in
    `ce_time`."""
    ahead = now() + 50 * 60_000
    settings = with_trainer(log.settings, straggler={"type": "deadline", "seconds": 600, "k": 2})
    here = partition_of(id_of("a"), 3)
    other = next(name for name in map(id_of, range(99)) if partition_of(name, 3) == here)
    await log.bring(0)
    await log.write(*(rollout(i, 0, group=id_of("a"), size=3) for i in range(2)))
    await log.write(rollout_event(rollout(0, 0, group=other), source="/test", now=ahead))
    async with GroupStream(settings) as stream:
        assert await drained(stream) == []
    assert await log.finals() == []
    newest = (await log.read(Topic.ROLLOUTS))[-1]
    assert abs(newest.timestamp - now()) < 60_000
    assert newest.headers.time == time_text(ahead)


async def test_past_its_budget_the_stream_keeps_handles_and_reads_payloads_again(log: Log) -> None:
    """Memory is bounded, and what is drawn is whole all the same (design/trainer#memory)."""

    def halves(member: int) -> list[Rollout]:
        return [rollout(member, [0] * 25_000, group=id_of(i)) for i in range(12)]

    await log.bring(0)
    await log.write(*halves(0))
    async with GroupStream(with_trainer(log.settings, buffer_bytes=1 << 20)) as stream:
        assert await drained(stream) == []
        size = len(rollout_event(halves(0)[0], source="/test", now=0).value)
        assert 1 << 21 <= stream._parts.intake.payload_bytes < (1 << 21) + size
        await log.write(*halves(1))
        batch = await anext(stream.batches(12, drain=True))
        assert all(m.rollout and len(m.rollout.trajectory.token_ids) == 25_002 for m in batch.members)
        assert stream._parts.intake.payload_bytes == 0
        await stream.trained(batch)
    assert len(await log.finals()) == 12


async def test_a_state_says_up_to_where_all_is_done(log: Log) -> None:
    """Nothing before the low watermark is unresolved (design/trainer#watermarks)."""
    await log.bring(0)
    await log.write(*group("a"), *group("b"), rollout(0, 0, group=id_of("open")))
    async with GroupStream(log.settings) as stream:
        await drained(stream)
        state = stream.state_dict()
    await log.write(rollout(1, 0, group=id_of("open")), *group("c"))
    lows = {number: marks["low"] for number, marks in enumerate(state["partitions"])}
    async with GroupStream(log.settings, Start(offsets=lows)) as stream:
        (batch,) = await drained(stream)
    assert names(batch) == {id_of("open"), id_of("c")}


def handles(final: GroupFinal) -> list[str | None]:
    return [member.handle for member in final.members]


async def test_later_records_of_a_drawn_group_are_late(log: Log) -> None:
    """At or above `as_of` (design/groups#accounting)."""
    await log.bring(0)
    await log.write(*group("a"), *group("b"))
    async with GroupStream(log.settings) as stream:
        batches = stream.batches(ahead=True)
        batch = await anext(batches)
        await log.write(*(rollout(i, 0, group=id_of("a"), attempt=2) for i in range(2)), *group("c"), *group("d"))
        await stream.trained(batch)
        second = await anext(batches)
        assert names(second) == {id_of("c"), id_of("d")}
        await stream.trained(second)
    async with GroupStream(log.settings) as stream:
        assert await drained(stream) == []
    final = next(final for final in await log.finals() if final.group == id_of("a"))
    assert all(handle and int(handle.split("/")[1]) < final.as_of for handle in handles(final))
    assert [m.attempt for m in final.members] == [1, 1]
