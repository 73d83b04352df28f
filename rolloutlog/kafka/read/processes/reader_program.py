"""The program of a process that reads partitions for another one, which is its parent.

Guarantees: it is told what to read in its first line, so no secret stands on a command line or in an environment; it
reads on only while a block of shared memory is free, so what it holds is bounded; what it tells of a place belongs to
the turn of that place; it ends with its parent, however that dies, since the socket between them ends. Leaves out: a
forked copy of the parent that outlives it holds the socket open, and so the reader.
"""

from __future__ import annotations

import asyncio
import gc
import os
import socket
import sys
from collections.abc import Sequence

import msgspec

from rolloutlog.contract.errors import RolloutlogError
from rolloutlog.contract.events.event import Event
from rolloutlog.kafka.client.quiet import quiet_clients
from rolloutlog.kafka.read.consumer_fetcher import ConsumerFetcher
from rolloutlog.kafka.read.ends import Place
from rolloutlog.kafka.read.processes.reader_words import (
    Answer,
    Asked,
    Command,
    Failed,
    Frame,
    FreeBlock,
    Opened,
    Opening,
    Pause,
    Resume,
    Seek,
    frame_of,
)
from rolloutlog.kafka.read.processes.shared_block import SharedBlock

FRAME_BYTES = 4 << 20
"""About so many bytes of events in a frame."""
IDLE_MS = 50
"""How long one wait for records lasts: so late it tells of a position that moved without any."""
RETRY_S = 0.5
LONGEST_LINE = 1 << 22
GARBAGE_AT = (50_000, 20, 50)
"""What is read has no cycles, so garbage is looked for seldom (`rolloutlog.kafka.loop.collection`)."""


class LogReader:
    """Reads what it was told to, and tells it."""

    def __init__(self, opening: Opening, blocks: Sequence[SharedBlock], words: asyncio.StreamWriter) -> None:
        self._fetcher = ConsumerFetcher(opening.connection, opening.fetch_bytes, opening.fetch_wait_ms, FRAME_BYTES)
        self._begins, self._checks = opening.begins, opening.checks
        self._places: list[Place] = [(one.topic, one.partition) for one in opening.begins]
        self._numbers = {place: number for number, place in enumerate(self._places)}
        self._turns = [one.turn for one in opening.begins]
        self._told: list[int | None] = [None] * len(self._places)
        self._words, self._blocks = words, blocks
        self._free = asyncio.Queue[int]()
        self._asked, self._came = list[Asked](), asyncio.Event()
        for number in range(len(blocks)):
            self._free.put_nowait(number)

    def hear(self, command: Command) -> None:
        """Do it before the next fetch."""
        if isinstance(command, FreeBlock):
            self._free.put_nowait(command.block)
        else:
            self._asked.append(command)
            self._came.set()

    async def run(self) -> None:
        """Read and tell, for ever; one that can't open says why, and ends."""
        try:
            await self._open()
        except RolloutlogError as error:
            self._tell(Failed.of(error, sum(self._turns)))
            await self._fetcher.close()
            return
        self._tell(Opened())
        while True:
            block = await self._free.get()
            events, moved = await self._something()
            frame = frame_of(events, self._numbers, checks=self._checks) if events else b""
            self._blocks[block].write(frame)
            self._tell(Frame(block, len(frame), moved))

    async def _open(self) -> None:
        starts = dict(zip(self._places, [one.offset for one in self._begins], strict=True))
        await self._fetcher.open(starts)
        for place, one in zip(self._places, self._begins, strict=True):
            if one.paused:
                self._fetcher.pause(place)

    async def _something(self) -> tuple[list[Event], list[tuple[int, int, int]]]:
        """What came, and which positions moved, once there is either."""
        while True:
            self._obey()
            try:
                events = await self._fetched()
            except RolloutlogError as error:
                await self._fail(error)
                continue
            if moved := await self._moved():
                return events, moved

    async def _fetched(self) -> list[Event]:
        """What comes within a moment; a command ends the wait."""
        fetching = asyncio.create_task(self._fetcher.fetch(IDLE_MS, None))
        waking = asyncio.create_task(self._came.wait())
        await asyncio.wait({fetching, waking}, return_when=asyncio.FIRST_COMPLETED)
        waking.cancel()
        if not fetching.done():
            fetching.cancel()
            await asyncio.wait({fetching})
        return [] if fetching.cancelled() else fetching.result()

    async def _moved(self) -> list[tuple[int, int, int]]:
        """Places that have moved since it was told of them, with their turns."""
        moved = list[tuple[int, int, int]]()
        for number, place in enumerate(self._places):
            position = await self._fetcher.position(place)
            if position != self._told[number]:
                self._told[number] = position
                moved.append((number, self._turns[number], position))
        return moved

    def _obey(self) -> None:
        """Do what was asked; not while events are in hand, which are told with the turn that they were read in."""
        asked, self._asked = self._asked, []
        self._came.clear()
        for one in asked:
            place = self._places[one.place]
            match one:
                case Seek(number, offset, turn):
                    self._fetcher.seek(place, offset)
                    self._turns[number], self._told[number] = turn, None
                case Pause():
                    self._fetcher.pause(place)
                case Resume():
                    self._fetcher.resume(place)

    async def _fail(self, error: RolloutlogError) -> None:
        self._tell(Failed.of(error, sum(self._turns)))
        await asyncio.sleep(RETRY_S)

    def _tell(self, word: Answer) -> None:
        self._words.write(msgspec.json.encode(word) + b"\n")


async def serve(parent: socket.socket, blocks: Sequence[SharedBlock]) -> None:
    """Read for the parent until it ends."""
    lines, words = await asyncio.open_connection(sock=parent, limit=LONGEST_LINE)
    first = await lines.readline()
    if not first:
        return
    reader = LogReader(msgspec.json.decode(first, type=Opening), blocks, words)
    running, hearing = asyncio.create_task(reader.run()), asyncio.create_task(_hear(lines, reader))
    await asyncio.wait({running, hearing}, return_when=asyncio.FIRST_COMPLETED)
    if hearing.done():
        os._exit(0)  # nobody wants anything of us any more, and we have written nothing
    running.result()


async def _hear(lines: asyncio.StreamReader, reader: LogReader) -> None:
    """Hear commands until the parent ends."""
    commands = msgspec.json.Decoder(Command)
    try:
        while line := await lines.readline():
            reader.hear(commands.decode(line))
    except ConnectionError:
        return


def main() -> None:
    """Arguments are file descriptors: of the socket, and of the blocks."""
    gc.set_threshold(*GARBAGE_AT)
    quiet_clients()
    parent, *blocks = (int(word) for word in sys.argv[1:])
    asyncio.run(serve(socket.socket(fileno=parent), [SharedBlock(fd) for fd in blocks]))


if __name__ == "__main__":
    main()
