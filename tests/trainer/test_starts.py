"""A start costs what is open: from the watermarks of the last live step (design/trainer#watermarks)."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest
from msgspec.structs import replace

from rolloutlog.consumers.views.run_status import status
from rolloutlog.contract.errors import NotFound, RecordsDeleted, RunMismatch, SettingsError
from rolloutlog.contract.events.group_events import GroupFinal, final_event
from rolloutlog.contract.events.run import TRAINER_SOURCE, step_closed
from rolloutlog.contract.events.watermarks import Watermarks
from rolloutlog.contract.ids import id_of
from rolloutlog.contract.policies import Policy
from rolloutlog.contract.settings import Settings
from rolloutlog.contract.topics import Topic
from rolloutlog.contract.vocabulary import EventType
from rolloutlog.kafka import run_record
from rolloutlog.kafka.client.connection import Connection
from rolloutlog.kafka.live_watermarks import read_live_watermarks
from rolloutlog.trainer.groups import ended_groups
from rolloutlog.trainer.steps import writer_mark
from rolloutlog.trainer.stream.group_stream import GroupStream
from rolloutlog.trainer.stream.starting import Start
from tests.producers.log import until
from tests.trainer.desk import rollout
from tests.trainer.log import Log, now
from tests.trainer.test_cut_log import cut
from tests.trainer.test_stream import drained, group, names, with_trainer

pytestmark = pytest.mark.broker


def own(settings: Settings, **trainer: Any) -> Settings:
    """One partition, a group a step."""
    changed = settings.model_dump(mode="json")
    changed["topics"]["partitions"] = 1
    return with_trainer(Settings.model_validate(changed), batch_groups=1, **trainer)


async def made(settings: Settings, **trainer: Any) -> Log:
    log = Log(own(settings, **trainer))
    await log.create()
    return log


async def marks_of(log: Log) -> Watermarks:
    found = await read_live_watermarks(await log.at_rest(Topic.RUN, Topic.POLICY_VERSIONS))
    assert found is not None
    return found


async def steps(stream: GroupStream, log: Log, *numbers: int, checkpoint: bool = False) -> None:
    """Train the groups of these steps, one each, and publish."""
    for step in numbers:
        await log.write(*group(f"g{step}", step - 1))
        batch = await anext(stream.batches())
        assert batch.step == step
        where = f"file:///{step}" if checkpoint else None
        await stream.trained(batch, publish=f"s3://w/{step}", checkpoint=where, checkpoint_digest=where and f"d{step}")


async def test_a_step_closes_with_its_watermarks_and_a_start_reads_from_them(settings: Settings) -> None:
    log = await made(settings)
    async with GroupStream(log.settings) as stream:
        await steps(stream, log, 1, 2)
        await log.write(rollout(0, 2, group=id_of("open")))
        await steps(stream, log, 3)
    found = await marks_of(log)
    assert (found.timeline, found.step) == (0, 3)
    assert (found.partitions[0].low, found.partitions[0].first) == (4, id_of("open"))
    await log.write(rollout(1, 2, group=id_of("open")))
    async with GroupStream(log.settings) as stream:
        assert stream._parts.intake.assemblies[0].next_offset == 4, "nothing below the low watermark is read"
        assert stream.step == 4
        assert [names(batch) for batch in await drained(stream)] == [{id_of("open")}]
    assert (await marks_of(log)).partitions[0].first is None


async def test_a_closed_step_says_how_the_other_groups_stand(settings: Settings) -> None:
    """`status` shows it (design/trainer#watermarks)."""
    log = await made(settings, staleness={"max_staleness": 1})
    assert (await status(log.settings))["trainer"] is None
    async with GroupStream(log.settings) as stream:
        await steps(stream, log, 1, 2)
        await log.write(*group("old", 0), rollout(0, 2, group=id_of("open")), *group("ready", 2), *group("g3", 2))
        batch = await anext(stream.batches())
        await stream.trained(batch, publish="s3://w/3")
    said = (await status(log.settings))["trainer"]
    assert said == {
        "timeline": 0, "step": 3, "groups": {"open": 2, "ready": 1, "held": 0, "lent": 0, "asked_again": 1},
        "lacks_weights": False,
    }  # fmt: skip


async def test_the_last_step_is_saved_after_it_was_told_and_a_resume_begins_behind_it(settings: Settings) -> None:
    """By the marks that closed it: what was dropped since is judged again."""
    log = await made(settings)
    async with GroupStream(log.settings) as stream:
        with pytest.raises(ValueError, match="step 0 isn't the last"):
            await stream.saved(0, checkpoint="file:///0")
        await steps(stream, log, 1)
        await log.write(*group("g2", 1))
        await stream.trained(await anext(stream.batches()))
        closed = await marks_of(log)
        await log.write(*(rollout(member, 1, group=id_of("equal"), reward=0.5) for member in range(2)))
        assert await drained(stream) == []
        with pytest.raises(ValueError, match="step 1 isn't the last"):
            await stream.saved(1, checkpoint="file:///1")
        with pytest.raises(SettingsError, match="checkpoint isn't a text"):
            await stream.saved(2, checkpoint="")
        await stream.saved(2, publish="s3://w/2", checkpoint="file:///2", checkpoint_digest="d2")
        with pytest.raises(ValueError, match="policy 0:2 is published already"):
            await stream.saved(2, publish="s3://w/2")
        assert stream.history.current == Policy(0, 2)
    (dropped,) = [final for final in await log.finals() if final.reason]
    assert (dropped.group, dropped.timeline, dropped.step) == (id_of("equal"), 0, 3)
    async with GroupStream(log.settings, Start(resume="checkpoint")) as stream:
        saved = stream.resumed
        assert saved is not None
        assert (saved.uri, saved.digest, saved.partitions) == ("file:///2", "d2", closed.partitions)
        assert stream.history.current == Policy(1, 2)
        assert await drained(stream) == []
    again = [(final.timeline, final.step) for final in await log.finals() if final.reason]
    assert again == [(0, 3), (1, 3)]


async def test_late_records_of_ended_groups_stay_late_after_a_start(settings: Settings) -> None:
    """Ids answer for them, whether a chunk has them or their final events."""
    log = await made(settings)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ended_groups, "CHUNK", 2)
        async with GroupStream(log.settings) as stream:
            await steps(stream, log, 1, 2, 3, 4, 5)
    chunks = [e for e in await log.read(Topic.GROUP_EVENTS) if e.headers.type == EventType.GROUPS_ENDED]
    mark = (await marks_of(log)).partitions[0]
    assert len(chunks) == 2
    assert (mark.oldest_chunk, mark.chunk) == tuple(chunk.offset for chunk in chunks)
    assert mark.events > chunks[0].offset, "final events that are in chunks aren't read again"
    await log.write(*group("g1", 0, attempt=2), *group("g5", 0, attempt=2), *group("new", 4))
    async with GroupStream(log.settings) as stream:
        assert len(stream._parts.intake.assemblies[0].endings.ids) == 5
        assert [names(batch) for batch in await drained(stream)] == [{id_of("new")}]


async def test_a_resume_reads_the_marks_of_its_checkpoint(settings: Settings) -> None:
    """Its un-ended groups are drawn again, the ended ones never (design/trainer#timelines)."""
    log = await made(settings)
    async with GroupStream(log.settings) as stream:
        await steps(stream, log, 1, checkpoint=True)
        await steps(stream, log, 2, 3)
    async with GroupStream(log.settings, Start(resume="checkpoint")) as stream:
        assert (stream.history.current, stream.step) == (Policy(1, 1), 2)
        assert stream._parts.intake.assemblies[0].next_offset == 2
        assert [names(batch) for batch in await drained(stream)] == [{id_of("g2")}, {id_of("g3")}]
    found = await marks_of(log)
    assert (found.timeline, found.step, found.partitions[0].low) == (1, 3, 6)
    live = [final.group for final in await log.finals() if final.timeline == 1 or final.step == 1]
    assert sorted(live) == sorted(id_of(name) for name in ("g1", "g2", "g3"))


async def test_a_start_after_a_resume_that_closed_no_step_goes_on_from_the_checkpoint(settings: Settings) -> None:
    log = await made(settings)
    async with GroupStream(log.settings) as stream:
        await steps(stream, log, 1, checkpoint=True)
        await steps(stream, log, 2)
    async with GroupStream(log.settings, Start(resume="checkpoint")):
        pass
    async with GroupStream(log.settings) as stream:
        assert (stream.step, stream._parts.intake.assemblies[0].next_offset) == (2, 2)
        assert [names(batch) for batch in await drained(stream)] == [{id_of("g2")}]


async def test_a_state_resumes_its_own_checkpoint_and_no_other(settings: Settings) -> None:
    log = await made(settings)
    with pytest.raises(NotFound, match="no checkpoint"):
        async with GroupStream(log.settings, Start(resume="checkpoint")):
            pass
    async with GroupStream(log.settings) as stream:
        await log.write(*group("g1"))
        batch = await anext(stream.batches())
        text = json.dumps(stream.state_dict(batch))
        await stream.trained(batch, publish="s3://w/1", checkpoint="file:///1")
        await steps(stream, log, 2)
        untold = stream.state_dict()
        with pytest.raises(RuntimeError, match="before"):
            stream.load_state_dict(untold)
    state = json.loads(text)
    resumed = GroupStream(log.settings)
    resumed.load_state_dict(state)
    async with resumed:
        assert (resumed.history.current, resumed.step) == (Policy(1, 1), 2)
    refused = [(untold, NotFound), ({**state, "run": "another"}, RunMismatch), ({**state, "step": None}, NotFound)]
    for bad, error in refused:
        with pytest.raises(error):
            async with GroupStream(log.settings, Start(resume=bad)):
                pass


async def test_records_that_were_deleted_above_a_watermark_are_refused_by_name(settings: Settings) -> None:
    log = await made(settings)
    async with GroupStream(log.settings) as stream:
        await log.write(rollout(0, 0, group=id_of("torn"), size=3), rollout(1, 0, group=id_of("torn"), size=3))
        await steps(stream, log, 1)
    await cut(log.connection, Topic.ROLLOUTS, 1)
    with pytest.raises(RecordsDeleted, match=id_of("torn")) as caught:
        async with GroupStream(log.settings):
            pass
    assert "offsets={0: 1" in (caught.value.hint or "")
    await log.write(*group("whole", 1))
    async with GroupStream(log.settings, Start(offsets={0: 1})) as stream:
        assert [names(batch) for batch in await drained(stream)] == [{id_of("whole")}]


async def test_deletion_below_the_watermarks_is_no_matter(settings: Settings) -> None:
    log = await made(settings)
    async with GroupStream(log.settings) as stream:
        await steps(stream, log, 1, 2)
    await cut(log.connection, Topic.ROLLOUTS, (await marks_of(log)).partitions[0].low)
    await log.write(*group("next", 2))
    async with GroupStream(log.settings) as stream:
        assert not stream._parts.intake.assemblies[0].cut_below
        assert [names(batch) for batch in await drained(stream)] == [{id_of("next")}]


async def test_drops_that_were_judged_for_a_later_step_are_void_after_a_resume(settings: Settings) -> None:
    """What is written while the next batch is drawn ahead ends no group for the checkpoint of the step before."""
    log = await made(settings)
    async with GroupStream(log.settings) as stream:
        await log.write(*group("g1"))
        batches, equal = stream.batches(ahead=True), id_of("equal")
        first = await anext(batches)
        await log.write(*(rollout(i, 0, group=equal, reward=1.0) for i in range(2)), *group("g2"))
        await until(lambda: equal in stream._parts.intake.assemblies[0].endings)
        await stream.trained(first, checkpoint="file:///1")
    mark = (await marks_of(log)).partitions[0]
    dropped = next(final for final in await log.finals() if final.group == equal)
    assert dropped.step == 2
    assert (mark.low, mark.first) == (2, equal)
    async with GroupStream(log.settings, Start(resume="checkpoint")) as stream:
        await drained(stream)
    ends = [(final.timeline, final.step) for final in await log.finals() if final.group == equal]
    assert ends == [(0, 2), (1, 2)]


async def test_facts_that_no_trainer_wrote_stop_no_start(settings: Settings, caplog: pytest.LogCaptureFixture) -> None:
    """A final event of a step that no policy can have, marks whose chunks are other records, and an end that says to
    have looked at more than there is, on a timeline that nobody started."""
    log = await made(settings, staleness={"max_staleness": "none"})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ended_groups, "CHUNK", 2)
        async with GroupStream(log.settings) as stream:
            await steps(stream, log, 1, 2, 3)
    mark = (await marks_of(log)).partitions[0]
    first, *_ = [event.offset for event in await log.read(Topic.GROUP_EVENTS)]
    by: dict[str, Any] = {"source": "/test", "now": now()}
    huge = GroupFinal(group=id_of("new"), group_size=2, timeline=0, step=2**61, as_of=0)
    await log.write(final_event(huge, **by))
    await log.write(final_event(huge.model_copy(update={"timeline": 7, "step": 1, "as_of": 2**61}), **by))
    for chunk in (first, 10**6):
        bad = Watermarks(timeline=0, step=9, partitions=(mark.model_copy(update={"chunk": chunk}),))
        await log.write(step_closed(bad, **by))
        await log.write(*group(f"new{chunk}", 3))
        async with GroupStream(log.settings) as stream:
            assert stream.step == 4 + (chunk > first)
            assert [names(batch) for batch in await drained(stream)] == [{id_of(f"new{chunk}")}]
    assert "of a step that no policy can have" in caplog.text
    assert "a step closed by '/test', who is no trainer" in caplog.text
    await log.write(*group("new", 3))
    async with GroupStream(log.settings) as stream:
        assert [names(batch) for batch in await drained(stream)] == [{id_of("new")}]
    told = Counter(e.headers.group for e in await log.read(Topic.GROUP_EVENTS) if e.headers.type == "group.trained")
    assert told.pop(id_of("new")) == 3, "the foreign ones, and ours"
    assert set(told.values()) == {1}, "no group is trained twice"


async def test_a_final_event_of_a_step_that_nobody_closed_ends_its_group_and_moves_no_step(
    settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    log = await made(settings)
    async with GroupStream(log.settings) as stream:
        await steps(stream, log, 1, 2)
    forged = GroupFinal(group=id_of("taken"), group_size=2, timeline=0, step=10**6, as_of=0)
    await log.write(final_event(forged, source="/test", now=now()))
    await log.write(*group("taken", 2))
    for step in (3, 4):
        await log.write(*group(f"g{step}", step - 1))
        async with GroupStream(log.settings) as stream:
            assert stream.step == step
            batch = await anext(stream.batches())
            assert names(batch) == {id_of(f"g{step}")}, "nobody trains a group twice, whoever says that it was"
            await stream.trained(batch, publish=f"s3://w/{step}")
    mark = (await marks_of(log)).partitions[0]
    last = (await log.read(Topic.ROLLOUTS))[-1].offset
    assert (mark.low, mark.first) == (last + 1, None), "it holds no mark"
    assert "is of step 1000000, which nobody has closed" in caplog.text


@pytest.mark.parametrize("source", ["/test", TRAINER_SOURCE])
@pytest.mark.parametrize("forged", ["low", "seeds", "events", "end", "chunk", "step", "unreadable"])
async def test_marks_that_the_topics_do_not_bear_out_train_nothing_twice(
    settings: Settings, forged: str, source: str, caplog: pytest.LogCaptureFixture
) -> None:
    """What somebody else than a trainer closes is no step. Where `rollouts` or `seeds` is shorter than a trainer says
    all is read from the beginning; where `group-events` isn't what it says, nobody knows what was trained: refused."""
    log = await made(settings)
    async with GroupStream(log.settings) as stream:
        await steps(stream, log, 1, 2)
    name = forged if forged not in ("step", "unreadable") else None
    partition = (await marks_of(log)).partitions[0].model_copy(update={name: 10**6} if name else {})
    step = 500 if forged == "step" else 2
    bad = step_closed(Watermarks(timeline=0, step=step, partitions=(partition,)), source=source, now=now())
    await log.write(replace(bad, value=b"{}") if forged == "unreadable" else bad)
    await log.write(*group("g3", 2))
    if source == TRAINER_SOURCE and forged in ("events", "end", "chunk", "step"):
        with pytest.raises(RecordsDeleted, match="which groups were trained is unknown"):
            async with GroupStream(log.settings):
                pass
        return
    async with GroupStream(log.settings) as stream:
        assert stream.step == 3
        assert [names(batch) for batch in await drained(stream)] == [{id_of("g3")}]
    said = "what closes step 2 of timeline 0 is passed over" if source == TRAINER_SOURCE else "who is no trainer"
    assert said in caplog.text or forged == "unreadable"
    trained = Counter(final.group for final in await log.finals())
    assert set(trained.values()) == {1}


async def test_a_start_reads_what_the_run_is_once(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    log = await made(settings)
    async with GroupStream(log.settings) as stream:
        await steps(stream, log, 1)
    before, starts, read = (await log.read(Topic.RUN))[-1].offset, list[int](), run_record.read_to_end

    def seen(connection: Connection, topic: Topic, partition: int, start: int = 0, **rest: Any) -> Any:
        starts.append(start)
        return read(connection, topic, partition, start, **rest)

    monkeypatch.setattr(run_record, "read_to_end", seen)
    monkeypatch.setattr(writer_mark, "read_to_end", seen)
    async with GroupStream(log.settings) as stream:
        assert stream.step == 2
    assert starts[0] == 0
    assert all(start > before for start in starts[1:])
