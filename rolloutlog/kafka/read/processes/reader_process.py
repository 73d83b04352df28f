"""One process that reads for this one (`reader_program`), as this one sees it.

Guarantees: it is started anew, never forked, so it shares no lock and no connection with us; it hears how to reach the
cluster over a socket; at most `BLOCKS` frames lie unread, each in a block of memory that both see; it is killed when it
is closed, since it writes nothing. Leaves out: starting another one when it dies (`reader_fetcher`).
"""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
from collections import deque
from collections.abc import Callable
from typing import cast

import msgspec

from rolloutlog.kafka.read.processes.reader_words import Answer, Command, Failed, Frame, FreeBlock, Opened, Opening
from rolloutlog.kafka.read.processes.shared_block import SharedBlock

BLOCKS = 3
"""One to read from, and two to be written meanwhile."""
MOMENTS, MOMENT_S = 100, 0.02
"""How often it is looked, and how long lies between, whether one that has hung up has ended."""
MODULE = "rolloutlog.kafka.read.processes.reader_program"
_ANSWERS = msgspec.json.Decoder[Answer](Answer)


class ReaderProcess(asyncio.Protocol):
    """`came` is called when it has said something, or has died."""

    def __init__(self, opening: Opening, came: Callable[[], None]) -> None:
        self.frames = deque[Frame]()
        self.failed: Failed | None = None
        self.is_open = self.is_dead = False
        self._opening, self._came = opening, came
        self._blocks = [SharedBlock() for _ in range(BLOCKS)]
        self._half = b""
        self._transport: asyncio.WriteTransport | None = None
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """Its process id; 0 before it is started."""
        return self._process.pid if self._process else 0

    async def start(self) -> None:
        """Start it, and tell it what to read."""
        ours, theirs = socket.socketpair()
        with theirs:
            self._launch(theirs)
        try:
            await asyncio.get_running_loop().create_connection(lambda: self, sock=ours)
        except BaseException:
            ours.close()
            raise

    def _launch(self, theirs: socket.socket) -> None:
        """A new interpreter, which inherits nothing but these files."""
        fds = [theirs.fileno(), *(block.fd for block in self._blocks)]
        path = os.pathsep.join(filter(None, sys.path))
        threads = {"OPENBLAS_NUM_THREADS": "1"}  # numpy starts some for algebra, which spin at first
        self._process = subprocess.Popen(
            [
                sys.executable,
                "-P",
                "-m",
                MODULE,
                *map(str, fds),
            ],  # modules of our folders, not of whatever folder this is
            pass_fds=fds,
            stdin=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C is for us to act on
            env=os.environ | threads | {"PYTHONPATH": path},
        )

    async def ended(self) -> int | None:
        """How one ended that has died: an exit code, or less than 0 for a signal. It has a moment to say why."""
        for _ in range(MOMENTS):
            if (code := self._process.poll() if self._process else 0) is not None:
                return code
            await asyncio.sleep(MOMENT_S)
        return None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Say the first word."""
        self._transport = cast("asyncio.WriteTransport", transport)
        self._write(self._opening)

    def data_received(self, data: bytes) -> None:
        """Take the words that are whole."""
        *lines, self._half = (self._half + data).split(b"\n")
        for line in lines:
            said = _ANSWERS.decode(line)
            match said:
                case Opened():
                    self.is_open = True
                case Frame():
                    self.frames.append(said)
                case Failed():
                    self.failed = said
        if lines:
            self._came()

    def connection_lost(self, exc: Exception | None) -> None:
        """It has died."""
        self.is_dead = True
        self._came()

    def view(self, frame: Frame) -> memoryview:
        """The bytes of a frame, to be released before `free`."""
        return self._blocks[frame.block].read(frame.size)

    def free(self, frame: Frame) -> None:
        """It was taken, and its block may be written again."""
        self.frames.remove(frame)
        self.tell(FreeBlock(frame.block))

    def tell(self, command: Command) -> None:
        """Say a word, which one that has died doesn't hear."""
        if not self.is_dead:
            self._write(command)

    def close(self) -> None:
        """End it."""
        if self._transport is not None:
            self._transport.abort()
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        for block in self._blocks:
            block.close()

    def _write(self, word: Command | Opening) -> None:
        if self._transport is not None:
            self._transport.write(msgspec.json.encode(word) + b"\n")
