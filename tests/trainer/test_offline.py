"""Training what an ended namespace has recorded, in a namespace of its own (design/trainer#offline)."""

from __future__ import annotations

import secrets
from typing import Any

import pytest

from rolloutlog.consumers.audit.auditor import audit
from rolloutlog.consumers.audit.mask_check import check_masks
from rolloutlog.consumers.replaying.source_choice import choose_offsets
from rolloutlog.consumers.views.run_status import status
from rolloutlog.contract.errors import RecordsDeleted, RunMismatch, SettingsError, Starved
from rolloutlog.contract.events.group_events import final_event
from rolloutlog.contract.handles import Handle
from rolloutlog.contract.ids import id_of
from rolloutlog.contract.partitions import partition_of
from rolloutlog.contract.policies import Policy
from rolloutlog.contract.settings import TrainerSettings
from rolloutlog.contract.topics import Topic
from rolloutlog.contract.vocabulary import DropReason, Verdict
from rolloutlog.kafka.client.admin import create_topics
from rolloutlog.kafka.run_record import declare
from rolloutlog.producers.producer import RolloutProducer
from rolloutlog.trainer.dispatch.batch import Batch
from rolloutlog.trainer.dispatch_service import run_dispatch
from rolloutlog.trainer.stream.group_stream import GroupStream
from rolloutlog.trainer.stream.group_view import groups_view
from rolloutlog.trainer.stream.starting import Start
from tests.trainer.desk import rollout
from tests.trainer.log import Log, now
from tests.trainer.test_cut_log import cut
from tests.trainer.test_stream import drained, group

pytestmark = pytest.mark.broker


async def offline(
    log: Log, begins: dict[int, int] | None = None, ends: dict[int, int] | None = None, **trainer: Any
) -> Log:
    """A namespace that trains what `log` holds now, or between these offsets."""
    changed = log.settings.model_copy(
        update={
            "namespace": f"offline-{secrets.token_hex(4)}",
            "trainer": TrainerSettings.model_validate({"batch_groups": 2, **trainer}),
        }
    )
    source = await choose_offsets(changed, log.settings.namespace, begins or {}, ends or {}, offline=True)
    made = Log(changed)
    await create_topics(made.connection, changed)
    await declare(made.connection, changed, source)
    return made


async def recorded(log: Log, *names: str, version: int = 4) -> None:
    """Groups on the log, sampled by a policy that a trainer published there."""
    await log.publish(*(Policy(0, v) for v in range(6)))
    await log.write(*(made for name in names for made in group(name, version)))


async def test_the_sources_groups_are_trained_and_told_in_the_own_namespace(log: Log) -> None:
    await recorded(log, *"abcde")
    mine = await offline(log)
    done = await run_dispatch(mine.settings)
    assert (done.steps, done.groups) == (3, 5), "the end of the source is the end, and the last batch is short"
    assert await log.finals() == []
    finals = await mine.finals()
    assert {final.group for final in finals} == set(map(id_of, "abcde"))
    for final in finals:
        assert (final.step, final.judged_step) == (5, 5), "its newest version + 1"
        handles = [Handle.parse(member.handle or "") for member in final.members]
        assert {handle.namespace for handle in handles} == {log.settings.namespace}
        assert {handle.partition for handle in handles} == {partition_of(final.group, 3)}
    assert (await run_dispatch(mine.settings)).groups == 0, "each once, whoever starts again"
    counted = await audit(mine.settings)
    assert (counted.ok, counted.counts.produced, counted.counts.terms["trained"]) == (True, 10, 10)
    theirs = await audit(log.settings)
    assert (theirs.ok, theirs.counts.terms["pending"]) == (True, 10), "nothing became of them there"
    masks = await check_masks(mine.settings)
    assert (masks.checked, masks.violations, masks.unchecked) == (5, [], {})
    rows = [row async for row in groups_view(mine.settings)]
    assert sorted((row["group"], row["status"], row["step"]) for row in rows) == sorted(
        (id_of(name), "trained", 5) for name in "abcde"
    )
    found = (await status(mine.settings))["source"]
    assert (found["namespace"], found["offline"], found["pass"], found["left"]) == (log.settings.namespace, True, 1, 0)


async def test_a_trainer_offline_has_steps_weights_and_checkpoints_of_its_own(log: Log) -> None:
    """While tokens are judged by the policies of the source: a step of this trainer makes none older."""
    await recorded(log, *"abcdefgh", version=2)
    mine = await offline(log, staleness={"max_staleness": 0})
    async with GroupStream(mine.settings, Start(weights="w/0")) as stream:
        told: list[Batch] = []
        async for batch in stream.batches():
            await stream.trained(batch, publish=f"w/{batch.step}", checkpoint=f"c/{batch.step}")
            told.append(batch)
            if batch.step == 3:
                break
        assert stream.history.current == Policy(0, 3)
    finals = {final.group: final for final in await mine.finals()}
    assert {(final.step, final.judged_step) for final in finals.values()} == {(1, 3), (2, 3), (3, 3)}
    assert {m.seq_staleness for final in finals.values() for m in final.members} == {0}
    rows = {row["group"]: row["status"] async for row in groups_view(mine.settings)}
    assert sorted(rows.values()) == ["ready"] * 2 + ["trained"] * 6
    async with GroupStream(mine.settings, Start(resume=Policy(0, 1))) as stream:
        again = await drained(stream)
    assert [batch.step for batch in again] == [2, 3, 4]
    first = {one.id for one in told[0].groups}
    assert {one.id for batch in again for one in batch.groups} == set(map(id_of, "abcdefgh")) - first
    counted = await audit(mine.settings)
    assert (counted.ok, counted.counts.terms["trained"]) == (True, 16)
    assert (await check_masks(mine.settings)).violations == []


async def test_what_came_after_the_draw_or_the_end_is_not_theirs(log: Log) -> None:
    """The source's trainer drew a group before its second member came again, and one group lies beyond the range."""
    await log.publish(Policy(0, 4))
    group_a = [rollout(m, 4, group=id_of("a")) for m in range(2)]
    await log.write(*group_a)
    place = partition_of(id_of("a"), 3)
    settings = log.settings.model_copy(update={"trainer": TrainerSettings(batch_groups=1)})
    assert (await run_dispatch(settings, step=5, drain=True)).groups == 1
    await log.write(rollout(1, [4], group=id_of("a"), attempt=2, reward=9.0), *group("b", 4), *group("c", 4)[:1])
    end = dict.fromkeys(range(3), 0) | {place: 3}
    short, whole = await offline(log, ends=end), await offline(log)
    for mine, names in ((short, "a"), (whole, "ab")):
        assert (await run_dispatch(mine.settings)).groups == len(names)
        finals = {final.group: final for final in await mine.finals()}
        assert finals.keys() == set(map(id_of, names))
        assert [(m.attempt, m.reward) for m in finals[id_of("a")].members] == [(1, 0.0), (1, 1.0)]
        assert finals[id_of("a")].as_of == (await log.finals())[0].as_of
    late = await audit(whole.settings)
    assert (late.ok, late.counts.superseded["late"], late.counts.terms["pending"]) == (True, 1, 1)
    assert (await audit(short.settings)).counts.produced == 3


@pytest.mark.parametrize("topic", [Topic.GROUP_EVENTS, Topic.ROLLOUTS])
async def test_a_source_that_was_cut_is_refused(log: Log, topic: Topic) -> None:
    """Without the final events nobody knows what a group was when it was trained."""
    await recorded(log, "a")
    settings = log.settings.model_copy(update={"trainer": TrainerSettings(batch_groups=1)})
    assert (await run_dispatch(settings, step=6, drain=True)).groups == 1
    made = await offline(log)
    await cut(log.connection, topic, 1, partition_of(id_of("a"), 3))
    with pytest.raises(RecordsDeleted, match=topic.value):
        async with GroupStream(made.settings):
            pass


async def test_what_lies_before_the_first_offset_is_not_read(log: Log) -> None:
    """A group that began before it isn't whole, so it isn't trained; a partition may have nothing at all. A start after
    a step finds its marks."""
    await recorded(log, *"abg")
    places = {name: partition_of(id_of(name), 3) for name in "abg"}
    assert sorted(places.values()) == [0, 1, 2]
    mine = await offline(log, begins={places["a"]: 1, places["g"]: 2})
    assert [(await run_dispatch(mine.settings)).groups for _ in range(2)] == [1, 0]
    assert {final.group for final in await mine.finals()} == {id_of("b")}
    counted = await audit(mine.settings)
    assert (counted.ok, counted.counts.terms["trained"], counted.counts.terms["pending"]) == (True, 2, 1)


async def test_nobody_is_asked_again_for_what_is_stale(log: Log) -> None:
    """Members that are too old leave; what nobody can make again is dropped(no-seed)."""
    await log.publish(*(Policy(0, v) for v in range(6)))
    mixed = [rollout(m, version, group=id_of("m"), size=3) for m, version in enumerate((0, 4, 4))]
    old = [rollout(0, 0, group=id_of("o")), rollout(1, 4, group=id_of("o"))]
    await log.write(*mixed, *old)
    mine = await offline(log, staleness={"max_staleness": 1})
    assert (await run_dispatch(mine.settings)).groups == 1
    finals = {final.group: final for final in await mine.finals()}
    assert [m.verdict for m in finals[id_of("m")].members] == [Verdict.EXPIRED, Verdict.FRESH, Verdict.FRESH]
    assert finals[id_of("o")].reason is DropReason.NO_SEED
    assert await mine.expired() == []
    given = await offline(log, staleness={"max_staleness": 1})
    assert (await run_dispatch(given.settings, step=8)).groups == 0
    assert {final.judged_step for final in await given.finals()} == {8}


def seen(batches: list[Batch]) -> list[list[tuple[str, list[int]]]]:
    return [[(one.id, [m.member for m in one.members]) for one in batch.groups] for batch in batches]


async def test_passes_go_through_the_source_again_and_a_start_goes_on_in_its_pass(log: Log) -> None:
    """Each group once a pass; the pass stands in the final event's id (design/trainer#passes)."""
    await recorded(log, *"abcde")
    mine = await offline(log, max_passes=3)
    async with GroupStream(mine.settings, Start()) as stream:
        told: list[Batch] = []
        async for batch in stream.batches(ahead=True):
            await stream.trained(batch)
            told.append(batch)
            if len(told) == 4:  # one batch into the second pass
                break
    assert [len(batch.groups) for batch in told] == [2, 2, 1, 2]
    assert (await status(mine.settings))["source"]["pass"] == 2
    async with GroupStream(mine.settings) as stream:
        told += await drained(stream)
    assert [len(batch.groups) for batch in told] == [2, 2, 1, 2, 2, 1, 2, 2, 1]
    assert [batch.step for batch in told] == [*range(1, 10)]
    finals = await mine.finals()
    assert sorted((final.pass_number, final.group) for final in finals) == sorted(
        (number, id_of(name)) for number in (1, 2, 3) for name in "abcde"
    )
    assert len({final.event_id for final in finals}) == 15
    async with GroupStream(mine.settings) as stream:
        assert await drained(stream) == []
    counted = await audit(mine.settings)
    assert (counted.ok, counted.counts.terms["trained"], counted.counts.produced) == (True, 10, 10)
    twice = finals[-1].model_copy(update={"step": 9})
    await mine.write(final_event(twice, source="/test", now=now()))
    assert [bad.kind for bad in (await audit(mine.settings)).violations] == ["two-finals"]


async def test_a_batch_that_goes_back_at_the_end_of_a_pass_comes_again_in_it(log: Log) -> None:
    await recorded(log, *"ab")
    mine = await offline(log, max_passes=2)
    async with GroupStream(mine.settings) as stream:
        batches = stream.batches(ahead=True)
        untold = await anext(batches)
        again = await anext(batches)
        assert seen([again]) == seen([untold])
        await stream.trained(again)
        second = await anext(batches)
        assert {one.final.pass_number for one in second.groups} == {2}
        await stream.trained(second)
        assert await anext(batches, None) is None


async def test_a_resume_goes_back_to_an_earlier_pass(log: Log) -> None:
    await recorded(log, *"abcd")
    mine = await offline(log, max_passes=2)
    async with GroupStream(mine.settings, Start(weights="w")) as stream:
        async for batch in stream.batches():
            await stream.trained(batch, publish="w")
            if batch.step == 3:
                break
    async with GroupStream(mine.settings, Start(resume=Policy(0, 1))) as stream:
        again = await drained(stream)
    assert [{one.final.pass_number for one in batch.groups} for batch in again] == [{1}, {2}, {2}]
    assert (await audit(mine.settings)).ok


async def test_a_source_without_a_policy_says_so_and_an_empty_one_is_through(log: Log) -> None:
    empty = await offline(log)
    assert (await run_dispatch(empty.settings)).groups == 0
    await log.write(*group("a"))
    mine = await offline(log)
    with pytest.raises(
        Starved, match=f"no policy was ever published or imported in namespace {log.settings.namespace}"
    ):
        await run_dispatch(mine.settings)


async def test_a_namespace_that_trains_offline_is_for_nothing_else(log: Log) -> None:
    await recorded(log, *"ab")
    mine = await offline(log)
    with pytest.raises(RunMismatch, match=r"trains the rollouts of .* offline, so there is no rollout to be made"):
        async with RolloutProducer(mine.settings):
            pass
    with pytest.raises(SettingsError, match="a source has ended"):
        async with GroupStream(mine.settings, Start(latest=True)):
            pass
    live = log.settings.model_copy(update={"trainer": TrainerSettings(max_passes=2)})
    with pytest.raises(SettingsError, match="max_passes 2: where rollouts are still made"):
        async with GroupStream(live):
            pass
    with pytest.raises(RecordsDeleted, match="lie in"):
        await offline(log, ends={0: 99})
    with pytest.raises(SettingsError, match="has no partition 7"):
        await offline(log, ends={7: 1})
