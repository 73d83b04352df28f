"""The feeder on a real broker: the cursor moves with the seeds, and no task is skipped or doubled
(design/live-loop#feeder)."""

from __future__ import annotations

import asyncio
import json
import secrets
import signal
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from rolloutlog.contract.errors import Fenced, PathUnusable, SettingsError
from rolloutlog.contract.events.group_events import GroupFinal, ended_event, final_event
from rolloutlog.contract.events.run import cursor_moved
from rolloutlog.contract.events.seeds import Seed
from rolloutlog.contract.service_settings.loop_settings import LoopSettings
from rolloutlog.contract.settings import Settings
from rolloutlog.contract.topics import Topic
from rolloutlog.contract.vocabulary import DropReason
from rolloutlog.kafka.client.admin import create_topics
from rolloutlog.kafka.client.connection import connect, connection_of
from rolloutlog.kafka.run_record import declare
from rolloutlog.kafka.write.transactions import TransactionalWriter
from rolloutlog.kafka.write.writing import Writer, now_ms
from rolloutlog.producers.feeding import seed_feeder
from rolloutlog.producers.feeding.feeder_view import FeederView, feeder_views
from rolloutlog.producers.feeding.fresh_room import FeedLack, FreshRoom, fresh_part
from rolloutlog.producers.feeding.seed_feeder import SeedFeeder
from rolloutlog.producers.feeding.task_source import TaskSource, file_tasks
from rolloutlog.supervisor.loop_work import LoopWork
from rolloutlog.supervisor.services import Service, ServiceRole
from tests.producers.log import everything, until

pytestmark = pytest.mark.broker


def source(count: int, identity: str = "numbers") -> TaskSource:
    return TaskSource("sums", identity, lambda: ({"key": f"task-{n}", "sum": [n, n]} for n in range(count)))


async def begin(settings: Settings, **trainer: Any) -> Settings:
    """A declared run of its own, of 2 partitions, in which 4 fresh groups may be open."""
    changed = Settings.model_validate({
        "namespace": f"feed-{secrets.token_hex(4)}",
        "bootstrap_servers": settings.bootstrap_servers,
        "topics": {"partitions": 2},
        "trainer": {"batch_groups": 4, "max_open": 4} | trainer,
    })  # fmt: skip
    connection = await connect(changed)
    await create_topics(connection, changed)
    await declare(connection, changed)
    return changed


async def seeds(settings: Settings) -> list[Seed]:
    return [Seed.of(event) for event in await everything(settings, Topic.SEEDS)]


async def end(settings: Settings, some: list[Seed], reason: DropReason | None = None) -> None:
    """What the trainer says of their groups."""
    async with Writer(connection_of(settings)) as writer:
        for seed in some:
            final = GroupFinal(group=seed.group, group_size=seed.group_size, timeline=0, step=1, reason=reason, as_of=1)
            await writer.send(final_event(final, source="/test", now=1))


async def wait_for(settings: Settings, count: int) -> list[Seed]:
    async def there() -> bool:
        return len(await seeds(settings)) >= count

    await until(there)
    return await seeds(settings)


@pytest.mark.anyio
async def test_no_more_groups_are_open_than_the_run_allows(settings: Settings) -> None:
    run = await begin(settings)
    async with SeedFeeder(run, source(10), epochs=1) as feeder:
        feeding = asyncio.create_task(feeder.run())
        first = await wait_for(run, 4)
        await asyncio.sleep(0.5)
        assert len(await seeds(run)) == 4
        assert (feeder.lack, feeder.room) == (FeedLack.OPEN_GROUPS, FreshRoom(most=4, open=4, own_most=4, own_open=4))
        await end(run, first[:3])
        done = {seed.id for seed in first[:3]}
        while len(done) < 10:
            there = await wait_for(run, min(len(done) + 4, 10))
            assert len(there) - len(done) <= 4
            await end(run, [seed for seed in there if seed.id not in done])
            done = {seed.id for seed in there}
        assert await feeding == 10
    found = await seeds(run)
    assert sorted(seed.fresh.key for seed in found if seed.fresh) == sorted(f"task-{n}" for n in range(10))
    assert all(
        seed.task == {"key": seed.fresh.key, "sum": [int(seed.fresh.key[5:])] * 2} for seed in found if seed.fresh
    )


@pytest.mark.parametrize(
    ("weights", "share", "part"),
    [({}, None, 12), ({}, 0.5, 6), ({}, 0.01, 1), ({"sums": 1, "words": 2}, None, 4), ({"words": 1}, None, 0)],
)
def test_a_feeder_has_its_part_of_the_fresh_groups(weights: dict[str, float], share: float | None, part: int) -> None:
    assert fresh_part(12, "sums", weights, share) == part


@pytest.mark.anyio
async def test_two_feeders_have_each_its_share(settings: Settings) -> None:
    """Whoever comes first: else one environment would have all places."""
    run = await begin(settings)
    words = TaskSource("words", "words", lambda: ({"key": str(n)} for n in range(9)))
    async with SeedFeeder(run, source(9), share=0.5) as first, SeedFeeder(run, words, share=0.5) as second:
        feeding = [asyncio.create_task(first.run())]
        there = await wait_for(run, 2)
        await asyncio.sleep(0.5)
        assert {seed.env for seed in there} == {"sums"}
        assert first.lack is FeedLack.OWN_SHARE
        feeding.append(asyncio.create_task(second.run()))
        assert Counter(seed.env for seed in await wait_for(run, 4)) == {"sums": 2, "words": 2}
        await end(run, there)
        assert Counter(seed.env for seed in await wait_for(run, 6)) == {"sums": 4, "words": 2}
        first.stop()
        second.stop()
        await asyncio.gather(*feeding)


@pytest.mark.anyio
async def test_why_nothing_is_fed_is_a_line_and_so_is_a_change_of_it(
    settings: Settings, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the level that is shown by default (design/live-loop#feeder)."""
    monkeypatch.setattr(seed_feeder, "IDLE_S", 0.3)
    run = await begin(settings)
    async with SeedFeeder(run, source(4), epochs=1, share=0.5) as feeder:
        feeding = asyncio.create_task(feeder.run())
        first = await wait_for(run, 2)
        await until(lambda: _is_said(caplog, "2 of 4 fresh groups are open, 2 of 2 of this feeder"))
        assert await feeder_views(run) == [FeederView("sums", 0, 2, feeder.room, FeedLack.OWN_SHARE)], "as in `status`"
        await end(run, first)
        rest = (await wait_for(run, 4))[2:]
        async with Writer(connection_of(run)) as writer:  # as a trainer does of every 2,048 ended groups
            await writer.send(ended_event([b"0" * 16], None, timeline=0, step=1, source="/test", now=1, partition=0))
        await end(run, rest[:1])
        await until(lambda: _is_said(caplog, "the data has ended; 1 of its groups haven't"))
        await end(run, rest[1:])
        assert await feeding == 4
        assert feeder.lack is FeedLack.NO_TASK
    (view,) = await feeder_views(run)
    assert (view.lack, view.room.open, view.epoch) == (FeedLack.NO_TASK, 0, 1)
    assert not [said for said in caplog.messages if "can't be read" in said]
    work = LoopWork(run.model_copy(update={"loop": LoopSettings(epochs=1)}), None, {"feeder-0": "sums"})
    assert await work.has_done(Service("feeder-0", ServiceRole.FEEDER, ())), "that it ended by itself is on the log"


@pytest.mark.anyio
@pytest.mark.parametrize("tasks", [9, 2], ids=["tasks-left", "groups-open"])
async def test_a_feeder_that_was_told_to_end_has_not_done_its_work(settings: Settings, tasks: int) -> None:
    """Also where all tasks were asked, since one may fail; nor has a trainer that has steps left
    (design/live-loop#run)."""
    run, asked = await begin(settings), min(tasks, 4)
    async with SeedFeeder(run, source(tasks), epochs=1) as feeder:
        feeding = asyncio.create_task(feeder.run())
        await wait_for(run, asked)
        feeder.stop()
        assert await feeding == asked
    work = LoopWork(run.model_copy(update={"loop": LoopSettings(epochs=1)}), 3, {"feeder-0": "sums"})
    assert not await work.has_done(Service("feeder-0", ServiceRole.FEEDER, ()))
    assert not await work.has_done(Service("trainer", ServiceRole.TRAINER, ()))


@pytest.mark.anyio
async def test_a_cursor_that_is_no_feeders_says_of_no_work_that_it_is_done(settings: Settings) -> None:
    """The feeder itself tells what is wrong with it."""
    run = await begin(settings)
    connection = await connect(run)
    writer = TransactionalWriter(connection, connection.names.transactional_id("feed.sums"))
    async with writer, writer.transaction() as transaction:
        await transaction.send(cursor_moved("feed/sums", {"line": 2}, source="/feed", now=now_ms()))
    work = LoopWork(run.model_copy(update={"loop": LoopSettings(epochs=1)}), None, {"feeder-0": "sums"})
    assert not await work.has_done(Service("feeder-0", ServiceRole.FEEDER, ()))
    with pytest.raises(SettingsError, match="isn't a feeder's"):
        async with SeedFeeder(run, source(2), epochs=1):
            pass


async def _is_said(caplog: pytest.LogCaptureFixture, line: str) -> bool:
    return any(line in record.getMessage() for record in caplog.records if record.levelname == "WARNING")


@pytest.mark.anyio
async def test_every_epoch_asks_each_task_once_and_failed_ones_again(settings: Settings) -> None:
    """Shares of dispatch are equal; what failed is asked under the next ordinal (decisions/staleness#101)."""
    run = await begin(settings)
    async with SeedFeeder(run, source(3), epochs=2, tries=2) as feeder:
        feeding = asyncio.create_task(feeder.run())
        done = set[str]()
        while not feeding.done():
            new = [seed for seed in await seeds(run) if seed.id not in done]
            bad = [seed for seed in new if seed.fresh and (seed.fresh.key, seed.fresh.epoch) == ("task-1", 0)]
            await end(run, bad, DropReason.SURVIVORS)
            await end(run, [seed for seed in new if seed not in bad])
            done |= {seed.id for seed in new}
            await asyncio.wait({feeding}, timeout=0.1)
        assert await feeding == 7
    asked = Counter((s.fresh.key, s.fresh.epoch, s.fresh.ordinal) for s in await seeds(run) if s.fresh)
    assert set(asked.values()) == {1}
    assert sorted(asked) == sorted(
        [(f"task-{n}", epoch, 0) for n in range(3) for epoch in range(2)] + [("task-1", 0, 1)]
    )


@pytest.mark.anyio
async def test_a_second_feeder_of_the_environment_fences_the_first(settings: Settings) -> None:
    run = await begin(settings)
    async with SeedFeeder(run, source(100)) as first:
        feeding = asyncio.create_task(first.run())
        there = await wait_for(run, 4)
        async with SeedFeeder(run, source(100)) as second:
            assert second.open_groups == 4
            await end(run, there)
            with pytest.raises(Fenced):
                await feeding
            again = asyncio.create_task(second.run())
            found = await wait_for(run, 8)
            second.stop()
            await again
    keys = [seed.fresh.key for seed in found if seed.fresh]
    assert sorted(keys) == sorted(f"task-{n}" for n in range(len(keys)))


@pytest.mark.anyio
async def test_another_source_is_refused(settings: Settings) -> None:
    run = await begin(settings)
    async with SeedFeeder(run, source(100)) as feeder:
        feeding = asyncio.create_task(feeder.run())
        await wait_for(run, 4)
        feeder.stop()
        await feeding
    with pytest.raises(SettingsError, match="from another source"):
        async with SeedFeeder(run, source(100, "letters")):
            pass


@pytest.mark.anyio
async def test_a_source_without_tasks_is_refused(settings: Settings) -> None:
    run = await begin(settings)
    async with SeedFeeder(run, source(0)) as feeder:
        with pytest.raises(SettingsError, match="no tasks of sums"):
            await feeder.run()


FEED = """
import asyncio, sys
from rolloutlog.contract.settings import Settings
from rolloutlog.producers.feeding.seed_feeder import SeedFeeder
from rolloutlog.producers.feeding.task_source import TaskSource

async def main():
    settings = Settings.model_validate_json(sys.argv[1])
    count = int(sys.argv[2])
    tasks = TaskSource("sums", "numbers", lambda: ({"key": f"task-{n}", "sum": [n, n]} for n in range(count)))
    async with SeedFeeder(settings, tasks, epochs=1, tries=2) as feeder:
        print("open", flush=True)
        print(await feeder.run(), flush=True)

asyncio.run(main())
"""


@pytest.mark.anyio
@pytest.mark.parametrize("times", [2, pytest.param(10, marks=pytest.mark.chaos)])
async def test_kills_skip_no_task_and_double_none(settings: Settings, times: int) -> None:
    """Whatever is in flight when it dies: groups that are open, groups that failed and weren't asked again yet."""
    run = await begin(settings)
    text = json.dumps(run.model_dump(mode="json"))
    done, kills, total = set[str](), 0, 0
    while True:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            FEED,
            text,
            str(6 * times),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        assert process.stdout is not None
        await asyncio.wait_for(process.stdout.readline(), 30)
        for _ in range(200):
            new = [seed for seed in await seeds(run) if seed.id not in done]
            failed = [
                seed for seed in new if seed.fresh and int(seed.fresh.key[5:]) % 5 == 0 and not seed.fresh.ordinal
            ]
            await end(run, failed, DropReason.SURVIVORS)
            await end(run, [seed for seed in new if seed not in failed])
            done |= {seed.id for seed in new}
            if process.returncode is not None or (kills < times and len(done) > total + 3):
                break
            await asyncio.wait({asyncio.ensure_future(process.wait())}, timeout=0.02)
        if process.returncode is not None:
            break
        process.send_signal(signal.SIGKILL)
        await process.wait()
        kills, total = kills + 1, len(done)
    assert process.stderr is not None
    assert process.returncode == 0, (await process.stderr.read()).decode()
    assert kills == times
    asked = Counter((s.fresh.key, s.fresh.ordinal) for s in await seeds(run) if s.fresh)
    assert set(asked.values()) == {1}
    assert sorted(asked) == sorted(
        [(f"task-{n}", 0) for n in range(6 * times)] + [(f"task-{n}", 1) for n in range(0, 6 * times, 5)]
    )


def test_rows_of_a_file_are_tasks_and_a_bad_one_is_named(tmp_path: Path) -> None:
    path = tmp_path / "tasks.jsonl"
    path.write_text('{"key": "a", "x": 1}\n\n{"x": 2}\n')
    assert list(file_tasks("sums", path).tasks(0)) == [(0, "a", {"key": "a", "x": 1}), (1, "1", {"x": 2})]
    assert [place for place, _, _ in file_tasks("sums", path).tasks(1)] == [1]
    path.write_text('{"key": "a"}\n[1]\n')
    with pytest.raises(SettingsError, match=r"tasks.jsonl:2 isn't a JSON object"):
        list(file_tasks("sums", path).tasks(0))
    with pytest.raises(PathUnusable):
        file_tasks("sums", tmp_path / "none.jsonl")


@pytest.mark.parametrize(
    ("rows", "why"),
    [
        (['{"key": "a"}', '{"key": "b"}', '{"key": "a"}'], "row 3 .* 'a', which another row has"),
        (['{"key": 1}', '{"key": "1"}'], "row 2 .* '1', which another row has"),
        (['{"key": "1"}', "{}"], "row 2 .* '1', which another row has"),
        (["{}", '{"key": "b"}', '{"key": "0"}'], "row 3 .* '0', which another row has"),
        (["{}", '{"key": ""}'], "row 2 .* an empty key"),
        (['{"key": true}'], "row 1 .* neither a short text nor a whole number"),
        ([f'{{"key": "{"k" * 1025}"}}'], "row 1 .* neither a short text nor a whole number"),
    ],
)
def test_a_key_that_another_row_has_is_refused(tmp_path: Path, rows: list[str], why: str) -> None:
    """The second row's task would be asked for in the first one's group; also where a start goes on behind it."""
    path = tmp_path / "tasks.jsonl"
    path.write_text("\n".join(rows))
    for first in (0, len(rows) - 1):
        with pytest.raises(SettingsError, match=why):
            list(file_tasks("sums", path).tasks(first))


def test_a_null_key_is_none(tmp_path: Path) -> None:
    path = tmp_path / "tasks.jsonl"
    path.write_text('{"key": null}\n{"key": null}\n{"key": "05"}\n{"key": "4"}')
    assert [key for _, key, _ in file_tasks("sums", path).tasks(0)] == ["0", "1", "05", "4"]


def test_rows_of_a_parquet_file_are_tasks(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    parquet.write_table(pyarrow.table({"key": ["a", "b"], "x": [1, 2]}), tmp_path / "tasks.parquet")
    assert [key for _, key, _ in file_tasks("sums", tmp_path / "tasks.parquet").tasks(0)] == ["a", "b"]
