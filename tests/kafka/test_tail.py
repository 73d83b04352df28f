"""Following partitions, by this process and by others that read for it (design/trainer#readers)."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sys
from asyncio.subprocess import PIPE
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from rolloutlog.contract.errors import BrokerUnreachable, IndexMismatch, ReaderFailed
from rolloutlog.contract.events.event import Event, Outgoing
from rolloutlog.contract.settings import Settings
from rolloutlog.contract.topics import Topic
from rolloutlog.kafka.client.admin import create_topics
from rolloutlog.kafka.client.connection import Connection, connect
from rolloutlog.kafka.read.ends import ends
from rolloutlog.kafka.read.processes import reader_process
from rolloutlog.kafka.read.processes.reader_fetcher import ReaderFetcher
from rolloutlog.kafka.read.processes.reader_process import BLOCKS
from rolloutlog.kafka.read.processes.reader_program import FRAME_BYTES
from rolloutlog.kafka.read.tail import Tail
from rolloutlog.kafka.write.transactions import TransactionalWriter
from tests.producers.log import at_rest, until

pytestmark = pytest.mark.broker

PLACES = [(Topic.ROLLOUTS, number) for number in range(3)]
STARTS = dict.fromkeys(PLACES, 0)
NUMBER_OF_READERS = [0, 2]

Seen = dict[int, list[bytes | None]]


async def filled(settings: Settings, records: int = 300, size: int = 8) -> Connection:
    """Records in transactions, each of which leaves a marker on the partitions that it wrote to; one was aborted."""
    connection = await connect(settings)
    await create_topics(connection, settings)
    made = [
        Outgoing(
            Topic.ROLLOUTS, b"k", [("ce_id", b"%d" % n), ("same", b"a"), ("same", b"b")], b"%0*d" % (size, n), n % 3
        )
        for n in range(records)
    ]
    async with TransactionalWriter(connection, f"{settings.namespace}.test") as writer:
        for first in range(0, records, 100):
            async with writer.transaction() as transaction:
                await transaction.send_all(made[first : first + 100])
        with pytest.raises(ZeroDivisionError):
            async with writer.transaction() as transaction:
                await transaction.send_all(made[:9])
                raise ZeroDivisionError
    await at_rest(connection, Topic.ROLLOUTS)
    return connection


def values(events: Sequence[Event]) -> Seen:
    """By partition, in the order in which they came."""
    seen: Seen = {number: [] for _, number in PLACES}
    for event in events:
        seen[event.partition].append(event.value)
    return seen


def expected(records: int = 300, size: int = 8) -> Seen:
    return {number: [b"%0*d" % (size, n) for n in range(number, records, 3)] for number in range(3)}


async def ends_of(tail: Tail) -> dict[tuple[Topic, int], int]:
    return {place: await tail.stable_end(*place) for place in PLACES}


async def read(tail: Tail, records: int, patience_s: float = 20.0) -> list[Event]:
    """So many events."""
    events: list[Event] = []
    async with asyncio.timeout(patience_s):
        while len(events) < records:
            events += await tail.poll()
    return events


def fetcher_of(tail: Tail) -> ReaderFetcher:
    fetcher = tail._fetcher
    assert isinstance(fetcher, ReaderFetcher)
    return fetcher


@pytest.mark.parametrize("readers", NUMBER_OF_READERS)
async def test_it_gives_what_is_committed_in_order_and_reads_past_markers(settings: Settings, readers: int) -> None:
    connection = await filled(settings)
    async with Tail(connection, STARTS, readers=readers) as tail:
        ends = await ends_of(tail)
        assert sum(ends.values()) > 300, "there are markers"
        events = [event async for batch in tail.until(ends) for event in batch]
        assert await tail.read_out() == {*PLACES}
        assert {place: await tail.position(*place) for place in PLACES} == ends
        assert await tail.poll(0) == []
    assert values(events) == expected()
    one = events[0]
    assert (one.topic, one.key, one.headers.id) == (Topic.ROLLOUTS, b"k", str(int(one.value or b"")))
    assert one.headers.raw["same"] == b"b"
    assert one.timestamp > 0


@pytest.mark.parametrize("readers", NUMBER_OF_READERS)
async def test_it_seeks_pauses_and_resumes(settings: Settings, readers: int) -> None:
    """Nothing comes of a paused place, and all of it once it is resumed; at any moment, whatever is under way."""
    connection = await filled(settings)
    place, other, third = PLACES
    async with Tail(connection, STARTS, readers=readers) as tail:
        first = await read(tail, 1)
        tail.pause(*place)
        behind = await tail.position(*place)
        events = first + await read(tail, 200 - sum(event.partition > 0 for event in first))
        while len([event for event in events if event.partition > 0]) < 200:
            events += await tail.poll()
        assert await tail.position(*place) == behind
        tail.resume(*place)
        events += await read(tail, 300 - len(events))
        assert values(events) == expected()
        for again in (7, 3):
            tail.seek(*other, again)
            assert await tail.position(*other) == again
        tail.pause(*third)
        tail.resume(*third)
        events = await read(tail, 97)
        assert (events[0].partition, events[0].offset, len(events)) == (1, 3, 97)


@pytest.mark.parametrize("readers", NUMBER_OF_READERS)
async def test_a_wait_that_is_cancelled_loses_nothing(settings: Settings, readers: int) -> None:
    connection = await filled(settings)
    dice, events = random.Random(5), list[Event]()
    async with Tail(connection, STARTS, readers=readers) as tail:
        async with asyncio.timeout(30):
            while len(events) < 300:
                polling = asyncio.create_task(tail.poll(200, max_records=dice.randint(1, 40)))
                await asyncio.wait({polling}, timeout=dice.choice((0, 0.001, 0.01, 0.3)))
                polling.cancel()
                await asyncio.wait({polling})
                if not polling.cancelled():
                    assert len(polling.result()) <= 40
                    events += polling.result()
    assert values(events) == expected()


@pytest.mark.parametrize("readers", NUMBER_OF_READERS)
async def test_an_offset_that_is_not_on_the_log_is_said(settings: Settings, readers: int) -> None:
    """When it opens, and later; then it goes on where it is sought back to."""
    connection = await filled(settings)
    with pytest.raises(IndexMismatch, match="isn't on the log"):
        async with Tail(connection, STARTS | {PLACES[0]: 999}, readers=readers):
            pass
    async with Tail(connection, STARTS, readers=readers) as tail:
        await read(tail, 300)
        tail.seek(*PLACES[0], 999)
        with pytest.raises(IndexMismatch, match="isn't on the log"):
            await read(tail, 1)
        tail.seek(*PLACES[0], 5)
        assert [event.offset for event in await read(tail, 1)][:1] == [5]


async def test_a_reader_that_is_killed_loses_nothing_and_repeats_nothing(settings: Settings) -> None:
    """Again and again, with a place paused and another sought meanwhile."""
    connection = await filled(settings, 1_500, 20_000)
    events = list[Event]()
    async with Tail(connection, STARTS, readers=2) as tail:
        async with asyncio.timeout(60):
            for part in (1, 500, 1_000):
                while len(events) < part:
                    events += await tail.poll()
                os.kill(fetcher_of(tail).pids[0], signal.SIGKILL)
                tail.pause(*PLACES[part % 3])
                events += await tail.poll(0)
                tail.resume(*PLACES[part % 3])
            while len(events) < 1_500:
                events += await tail.poll()
        os.kill(fetcher_of(tail).pids[0], signal.SIGKILL)
        tail.seek(*PLACES[0], 0)
        again = await read(tail, 1)
    assert values(events) == expected(1_500, 20_000)
    assert (again[0].partition, again[0].offset) == (0, 0)


async def test_readers_that_die_at_once_are_given_up(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    connection = await filled(settings, 3)
    monkeypatch.setattr(reader_process, "MODULE", "rolloutlog.nothing_of_that_name")
    with pytest.raises(ReaderFailed, match="exit code 1"):
        async with Tail(connection, STARTS, readers=1):
            pass
    assert "nothing_of_that_name" in capfd.readouterr().err


async def test_readers_that_die_of_what_they_read_are_given_up(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each has told where it stands before it dies."""
    connection = await filled(settings, 3)
    monkeypatch.setattr(reader_process, "MODULE", "tests.kafka.dying_reader")
    async with asyncio.timeout(30), Tail(connection, STARTS, readers=1) as tail:
        with pytest.raises(ReaderFailed, match="exit code 9"):
            while True:
                assert await tail.poll(20) == []


async def test_what_lies_unread_is_bounded(settings: Settings) -> None:
    """While nobody polls, a reader fills its blocks and no more."""
    connection = await filled(settings, 1_500, 20_000)
    async with Tail(connection, STARTS, readers=1) as tail:
        events = await read(tail, 1)
        process = fetcher_of(tail)._shares[0]._process
        assert process is not None
        await until(lambda: len(process.frames) == BLOCKS)
        assert max(frame.size for frame in process.frames) < 1.1 * FRAME_BYTES
        events += await read(tail, 1_500 - len(events))
    assert values(events) == expected(1_500, 20_000)


async def test_what_a_reader_can_not_do_is_raised_as_its_own_error(settings: Settings) -> None:
    connection = await filled(settings, 3)
    known = await ends(connection, [Topic.ROLLOUTS])
    away = replace(connection, bootstrap_servers="127.0.0.1:9")
    with pytest.raises(BrokerUnreachable, match=r"127\.0\.0\.1:9") as raised:
        async with Tail(away, STARTS, known=known, readers=2):
            pass
    assert raised.value.hint == BrokerUnreachable.default_hint


def is_there(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


OWNER = """
import asyncio, sys
from rolloutlog.contract.settings import Settings
from rolloutlog.contract.topics import Topic
from rolloutlog.kafka.client.connection import connect
from rolloutlog.kafka.read.tail import Tail

async def main():
    settings = Settings(namespace=sys.argv[1], bootstrap_servers=sys.argv[2])
    async with Tail(await connect(settings), {(Topic.ROLLOUTS, n): 0 for n in range(3)}, readers=2) as tail:
        while not await tail.poll():
            pass
        print(*tail._fetcher.pids, flush=True)
        await asyncio.sleep(60)

asyncio.run(main())
"""


async def test_readers_are_gone_when_it_is_closed(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor does a command line say more than descriptors, or a module of the present folder get in the way."""
    connection = await filled(settings, 3)
    (tmp_path / "asyncio.py").write_text("raise RuntimeError")
    monkeypatch.chdir(tmp_path)
    async with Tail(connection, STARTS, readers=2) as tail:
        await read(tail, 3)
        pids = fetcher_of(tail).pids
        shown = await asyncio.create_subprocess_exec("ps", "-o", "args=", "-p", str(pids[0]), stdout=PIPE)
        words = (await shown.communicate())[0].split()
        assert all(word.isdigit() for word in words[4:]), words
    assert len(pids) == 2
    assert not any(map(is_there, pids))


async def test_readers_are_gone_when_their_parent_is_killed(settings: Settings) -> None:
    await filled(settings, 3)
    command = [sys.executable, "-c", OWNER, settings.namespace, str(settings.bootstrap_servers)]
    owner = await asyncio.create_subprocess_exec(*command, stdout=PIPE)
    assert owner.stdout is not None
    pids = [int(word) for word in (await owner.stdout.readline()).split()]
    assert len(pids) == 2
    assert all(map(is_there, pids))
    owner.kill()
    await owner.wait()
    await until(lambda: not any(map(is_there, pids)))
