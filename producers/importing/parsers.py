"""Passes over spans, in this process or shared among several.

Guarantees: batches come in the order of the lines, whoever read them; a parser process ends with this one, since its
input closes and nobody reads what it writes; what is read ahead is bounded, by a few batches a parser. Leaves out: what
the items mean.
"""

from __future__ import annotations

import asyncio
import os
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Sequence
from typing import Self, TypeVar

import msgspec

from rolloutlog.producers.importing.passes import Batch, Pass
from rolloutlog.producers.importing.span import Span

T = TypeVar("T")

MODULE = "rolloutlog.producers.importing.parser_process"
HEAD = 4
"""Bytes of a frame's length, little-endian; a frame of length 0 ends a span."""
READ_AHEAD = 1 << 20
WORTH_BYTES = 64 << 20
"""A process takes half a second to start, and reads about so much in the meantime."""


def parsers_for(size: int) -> int:
    """How many processes are worth it for so many bytes: one a core, and none for little."""
    wanted = min(os.cpu_count() or 1, size // WORTH_BYTES)
    return wanted if wanted > 1 else 0


class Parsers:
    """Reads spans: `async with Parsers(2) as parsers: async for batch in parsers.read(COUNT, spans)`."""

    def __init__(self, processes: int) -> None:
        """With no processes all is read here, in a thread."""
        self._count = processes
        self._processes: list[Process] = []

    async def __aenter__(self) -> Self:
        alone = os.environ | {"OPENBLAS_NUM_THREADS": "1"}  # numpy starts threads for algebra, which spin at first
        command = (sys.executable, "-m", MODULE)
        for _ in range(self._count):
            process = await asyncio.create_subprocess_exec(
                *command, stdin=PIPE, stdout=PIPE, limit=READ_AHEAD, start_new_session=True, env=alone
            )
            self._processes.append(process)
        return self

    async def __aexit__(self, *_: object) -> None:
        for process in self._processes:
            if process.returncode is None:
                process.kill()
            await process.wait()

    async def read(self, asked: Pass[T], spans: Sequence[Span]) -> AsyncIterator[Batch[T]]:
        """Batches of all spans, in order."""
        if not self._processes:
            async for batch in _here(asked, spans):
                yield batch
            return
        count = len(self._processes)
        for number, process in enumerate(self._processes):
            _ask(process, asked, spans[number::count])
        for number, span in enumerate(spans):
            async for batch in _answers(asked, span, self._processes[number % count]):
                yield batch


async def _here(asked: Pass[T], spans: Sequence[Span]) -> AsyncIterator[Batch[T]]:
    """In a thread, one batch ahead of who takes them."""
    batches = asked.read(spans)
    ahead = asyncio.create_task(asyncio.to_thread(next, batches, None))
    try:
        while (batch := await ahead) is not None:
            ahead = asyncio.create_task(asyncio.to_thread(next, batches, None))
            yield batch
    finally:
        await asyncio.wait([ahead])
        batches.close()


def _ask(process: Process, asked: Pass[T], spans: Sequence[Span]) -> None:
    if process.stdin is None:
        raise RuntimeError("a parser process has no input")
    frame = msgspec.msgpack.encode((asked.name, list(spans)))
    process.stdin.write(len(frame).to_bytes(HEAD, "little") + frame)


async def _answers(asked: Pass[T], span: Span, process: Process) -> AsyncIterator[Batch[T]]:
    if process.stdout is None:
        raise RuntimeError("a parser process has no output")
    while length := int.from_bytes(await process.stdout.readexactly(HEAD), "little"):
        size, items = asked.decoder.decode(await process.stdout.readexactly(length))
        yield Batch(span, items, size)
