"""Following a run that is still written: new lines, files and chunks, torn lines, replaced files, and kill -9."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any

import orjson
import pytest

from rolloutlog.contract.errors import Fenced, SettingsError, SourceUnreadable
from rolloutlog.contract.events.event import Event
from rolloutlog.contract.events.rollouts import read_annotation
from rolloutlog.contract.events.validation import read_headers
from rolloutlog.contract.settings import Settings
from rolloutlog.contract.topics import Topic
from rolloutlog.contract.vocabulary import EventType
from rolloutlog.kafka.client.admin import create_topics
from rolloutlog.kafka.client.connection import connect
from rolloutlog.kafka.read.reading import read_to_end
from rolloutlog.kafka.run_record import declare
from rolloutlog.producers.importing.demo_records import demo_run
from rolloutlog.producers.importing.follow import follow_runs
from rolloutlog.producers.importing.report import Report

pytestmark = pytest.mark.broker

SECONDS = 40.0
LINES = (demo_run() / "rollouts/step_3/train/all/traces.jsonl").read_bytes().splitlines(True)


def append(path: Path, *lines: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as file:
        file.write(b"".join(lines))


async def events(settings: Settings, topic: Topic = Topic.ROLLOUTS, partitions: int = 3) -> list[Event]:
    connection = await connect(settings)
    return [
        event
        for number in range(partitions)
        async for batch in read_to_end(connection, topic, number, allow_open=True)
        for event in batch
    ]


async def until(holds: Callable[[], Awaitable[bool]]) -> None:
    deadline = asyncio.get_running_loop().time() + SECONDS
    while not await holds():
        assert asyncio.get_running_loop().time() < deadline, "it didn't come"
        await asyncio.sleep(0.1)


def records(found: list[Event]) -> list[str]:
    """Trace ids of the rollouts on the log, in order of their partition and offset."""
    return [event.headers.trace or "" for event in found if event.headers.type != EventType.ROLLOUT_ANNOTATED]


def followed(settings: Settings, folder: Path, act: Callable[..., Coroutine[Any, Any, None]], **options: Any) -> Report:
    """Follow a folder while `act(arrived)` writes to it; `arrived(n)` waits until n rollouts are on the log."""

    async def arrived(number: int) -> None:
        async def holds() -> bool:
            return len(records(await events(settings))) >= number

        await until(holds)

    async def body() -> Report:
        connection = await connect(settings)
        await create_topics(connection, settings)
        await declare(connection, settings)
        stop = asyncio.Event()
        following = asyncio.create_task(follow_runs(settings, [folder], stop=stop, **options))
        acting = asyncio.create_task(act(arrived))
        await asyncio.wait({following, acting}, return_when=asyncio.FIRST_COMPLETED)
        if acting.done():
            acting.result()
        acting.cancel()
        await asyncio.wait({acting})
        stop.set()
        return await following

    return asyncio.run(body())


def test_new_lines_files_and_steps(settings: Settings, tmp_path: Path) -> None:
    """Each is taken as it comes, within its group, whose size the user says; nothing is cancelled."""
    steps = tmp_path / "run" / "rollouts"

    async def act(arrived: Callable[[int], Awaitable[None]]) -> None:
        append(steps / "step_1/train/all/traces.jsonl", *LINES[:3])
        await arrived(3)
        append(steps / "step_1/train/all/traces.jsonl", LINES[3])
        append(steps / "step_2/train/all/traces.jsonl", *LINES[4:6])
        await arrived(6)

    steps.mkdir(parents=True)
    report = followed(settings, tmp_path / "run", act, group_size=4)
    assert (report.imported, report.rejected, report.cancelled, report.singles) == (6, 0, 0, 0)
    found = asyncio.run(events(settings))
    assert {event.headers.group_size for event in found} == {4}
    by_group = Counter(event.headers.group for event in found)
    assert sorted(by_group.values()) == [2, 4]
    for event in found:
        read_headers(event, 3)


def test_a_torn_line_is_taken_when_it_is_whole(settings: Settings, tmp_path: Path) -> None:
    """Never half a line: the rest comes later."""
    file = tmp_path / "traces.jsonl"

    async def act(arrived: Callable[[int], Awaitable[None]]) -> None:
        await arrived(1)
        append(file, LINES[1][:1000])
        append(tmp_path / "other.jsonl", LINES[3])
        await arrived(2)  # so it has looked at both
        append(file, LINES[1][1000:], LINES[2])
        await arrived(4)

    append(file, LINES[0])
    report = followed(settings, tmp_path, act, group_size=4)
    assert (report.imported, report.rejected) == (4, 0)


def test_it_goes_on_where_it_was(settings: Settings, tmp_path: Path) -> None:
    """A second follower of the same paths reads only what is new."""
    file = tmp_path / "traces.jsonl"

    async def first(arrived: Callable[[int], Awaitable[None]]) -> None:
        await arrived(5)

    async def second(arrived: Callable[[int], Awaitable[None]]) -> None:
        append(file, *LINES[5:7])
        await arrived(7)

    append(file, *LINES[:5])
    assert followed(settings, tmp_path, first, group_size=4).imported == 5
    report = followed(settings, tmp_path, second, group_size=4)
    assert (report.imported, report.duplicates) == (2, 0)
    members = sorted((event.headers.group or "", event.headers.member) for event in asyncio.run(events(settings)))
    assert len(set(members)) == 7


def test_a_replaced_and_a_shrunk_file(settings: Settings, tmp_path: Path) -> None:
    """A rewritten file is read anew: the same lines are duplicates, changed ones the next attempt; one that shrinks
    is a dead letter, and goes on."""
    file = tmp_path / "traces.jsonl"
    changed = orjson.loads(LINES[1])
    changed["traces"][0]["metrics"]["edited"] = 1.0

    async def act(arrived: Callable[[int], Awaitable[None]]) -> None:
        await arrived(3)
        other = tmp_path / "new"
        other.write_bytes(LINES[0] + orjson.dumps(changed) + b"\n" + LINES[2] + LINES[3])
        other.rename(file)
        await arrived(5)
        os.truncate(file, len(LINES[0]))

        async def told() -> bool:
            return len(await events(settings, Topic.DEAD_LETTERS, 1)) == 1

        await until(told)
        append(file, LINES[4])
        await arrived(6)

    append(file, *LINES[:3])
    report = followed(settings, tmp_path, act, group_size=4)
    assert (report.imported, report.eras["E4"].changed, report.rejected) == (6, 1, 1)
    attempts = Counter(event.headers.attempt for event in asyncio.run(events(settings)))
    assert attempts == {1: 5, 2: 1}
    (letter,) = asyncio.run(events(settings, Topic.DEAD_LETTERS, 1))
    assert orjson.loads(letter.value or b"")["reason"] == "truncated"


def test_updates_come_after_their_trace(settings: Settings, samples: Path, tmp_path: Path) -> None:
    """E5: an update of an imported trace becomes a note, folded with those before; a chunk that was compressed
    meanwhile is the same file."""
    source, run = samples / "sept2026/monitors/file/traces", tmp_path / "monitors/file/traces"
    stream = (source / "stream/00000.jsonl").read_bytes().splitlines(True)
    trainer = (source / "annotations/trainer/00000.jsonl").read_bytes().splitlines(True)
    compacted = orjson.loads(stream[5])["traces"][0]["id"]
    both = [text for text in trainer if orjson.loads(text)["trace_id"] == compacted]

    async def newest() -> dict[str, Any]:
        notes = [e for e in await events(settings) if e.headers.type == EventType.ROLLOUT_ANNOTATED]
        return next((f for f in map(read_annotation, reversed(notes)) if "trainer_logprobs" in f), {})

    async def act(arrived: Callable[[int], Awaitable[None]]) -> None:
        import zstandard

        await arrived(6)
        append(run / "annotations/trainer/00000.jsonl", both[0])
        await until(lambda: _has(newest, 9))
        packed = run / "stream/00000.jsonl.zst"
        packed.with_suffix(".tmp").write_bytes(zstandard.ZstdCompressor().compress(b"".join(stream[:7])))
        packed.with_suffix(".tmp").rename(packed)
        (run / "stream/00000.jsonl").unlink()
        await arrived(7)
        append(run / "annotations/trainer/00000.jsonl", both[1])
        await until(lambda: _has(newest, 0))

    append(run / "stream/00000.jsonl", *stream[:6])
    report = followed(settings, tmp_path, act, group_size=4)
    assert (report.imported, report.duplicates, report.rejected) == (7, 0, 0)


async def _has(newest: Callable[[], Awaitable[dict[str, Any]]], absent: int) -> bool:
    """True once the newest note has the values of the trainer for all but so many tokens."""
    values = (await newest()).get("trainer_logprobs")
    return values is not None and sum(value is None for value in values) == absent


def test_a_score_comes_later(settings: Settings, tmp_path: Path) -> None:
    """While following, an unscored rollout is completed with its reward pending; the score is an annotation."""
    unscored = orjson.loads(LINES[0])
    unscored["traces"][0]["rewards"] = {"correct": None}

    async def act(arrived: Callable[[int], Awaitable[None]]) -> None:
        await arrived(1)
        append(tmp_path / "traces.jsonl", LINES[0])

        async def noted() -> bool:
            return len(await events(settings)) == 2

        await until(noted)

    append(tmp_path / "traces.jsonl", orjson.dumps(unscored) + b"\n")
    report = followed(settings, tmp_path, act, group_size=4)
    assert (report.imported, report.duplicates) == (1, 1)
    first, note = asyncio.run(events(settings))
    assert (first.headers.type, first.headers.reward) == (EventType.ROLLOUT_COMPLETED, None)
    assert read_annotation(note) == {"reward": pytest.approx(1.1)}


def test_a_second_follower_fences_the_first(settings: Settings, tmp_path: Path) -> None:
    append(tmp_path / "traces.jsonl", LINES[0])

    async def act(arrived: Callable[[int], Awaitable[None]]) -> None:
        await arrived(1)
        stop = asyncio.Event()
        other = asyncio.create_task(follow_runs(settings, [tmp_path], group_size=4, stop=stop))
        try:
            append(tmp_path / "traces.jsonl", LINES[1])
            await arrived(2)
            append(tmp_path / "traces.jsonl", *LINES[2:6])
            await arrived(6)
        finally:
            stop.set()
            await other

    with pytest.raises(Fenced):
        followed(settings, tmp_path, act, group_size=4)


def test_the_size_of_groups_is_asked_for_or_learned(settings: Settings, tmp_path: Path) -> None:
    """A step that is still written can't show it; a finished one does, and what it shows too small loses nothing."""
    steps = tmp_path / "rollouts"
    append(steps / "step_1/train/all/traces.jsonl", *LINES[:4], LINES[4])

    async def nothing(arrived: Callable[[int], Awaitable[None]]) -> None:
        await arrived(1)

    with pytest.raises(SettingsError, match="how many rollouts a group"):
        followed(settings, tmp_path, nothing)
    assert asyncio.run(events(settings)) == []

    async def act(arrived: Callable[[int], Awaitable[None]]) -> None:
        append(steps / "step_3/train/all/traces.jsonl", *LINES[8:12])
        await arrived(12)

    append(steps / "step_2/train/all/traces.jsonl", *LINES[5:8])
    report = followed(settings, tmp_path, act)
    assert (report.imported, report.groups, report.singles) == (12, 3, 0)
    assert Counter(event.headers.group_size for event in asyncio.run(events(settings))) == {4: 12}


def test_two_files_that_begin_alike_grow_apart(settings: Settings, tmp_path: Path) -> None:
    """Chats without an id: the second file is taken for a copy of the first, until it has a line that that one has not;
    then all of its lines are its own."""

    def chat(answer: str) -> bytes:
        return b'{"example_id":0,"prompt":"q","completion":"%s","reward":1.0}\n' % answer.encode()

    async def act(arrived: Callable[[int], Awaitable[None]]) -> None:
        await arrived(2)
        append(tmp_path / "b.jsonl", chat("own"))
        await arrived(4)
        append(tmp_path / "b.jsonl", chat("own"))
        append(tmp_path / "a.jsonl", chat("same"))
        await arrived(6)

    append(tmp_path / "a.jsonl", chat("same"), chat("other"))
    append(tmp_path / "b.jsonl", chat("same"))
    assert followed(settings, tmp_path, act, group_size=3).rejected == 0
    groups = Counter(event.headers.group for event in asyncio.run(events(settings)))
    assert sorted(groups.values()) == [3, 3]

    async def more(arrived: Callable[[int], Awaitable[None]]) -> None:
        append(tmp_path / "b.jsonl", chat("last"))
        await arrived(7)

    assert followed(settings, tmp_path, more, group_size=3).imported == 1


def test_a_path_that_is_not_there(settings: Settings, tmp_path: Path) -> None:
    with pytest.raises(SourceUnreadable):
        asyncio.run(follow_runs(settings, [tmp_path / "no" / "where"]))


FOLLOW = """
import asyncio, sys
from rolloutlog.contract.settings import Settings
from rolloutlog.producers.importing.follow import follow_runs
settings = Settings.model_validate_json(sys.argv[1])
asyncio.run(follow_runs(settings, [sys.argv[2]], group_size=4))
"""


@pytest.mark.timeout(170)
def test_killed_again_and_again_nothing_is_lost_or_doubled(settings: Settings, tmp_path: Path) -> None:
    """SIGKILL at any moment, while the run goes on: every trace is on the log once, in its place."""
    file = tmp_path / "run/rollouts/step_1/train/all/traces.jsonl"
    file.parent.mkdir(parents=True)

    async def prepare() -> None:
        connection = await connect(settings)
        await create_topics(connection, settings)
        await declare(connection, settings)

    asyncio.run(prepare())
    arguments = [sys.executable, "-c", FOLLOW, settings.model_dump_json(), str(tmp_path / "run")]
    for number, line in enumerate(LINES):
        process = subprocess.Popen(arguments) if number % 3 == 0 else None
        half = len(line) // 2
        append(file, line[:half])
        time.sleep(0.4)
        append(file, line[half:])
        if process is not None:
            time.sleep(0.5 + number / 10)
            process.send_signal(signal.SIGKILL)
            process.wait()

    async def rest(arrived: Callable[[int], Awaitable[None]]) -> None:
        await arrived(len(LINES))

    followed(settings, tmp_path / "run", rest, group_size=4)
    found = asyncio.run(events(settings))
    assert sorted(records(found)) == sorted(orjson.loads(line)["traces"][0]["id"] for line in LINES)
    assert {event.headers.attempt for event in found} == {1}
    assert Counter(event.headers.group for event in found).most_common(1)[0][1] == 4
    assert len({event.headers.rollout for event in found}) == 16
    shutil.rmtree(tmp_path / "run")
