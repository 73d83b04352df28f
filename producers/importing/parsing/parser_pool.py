"""The two passes over a source's spans, in this process or shared among several.

Guarantees: a span read by either pass gives one item per line; batches come in the order of the lines, whoever read
them; what is read ahead is bounded, by a few batches a parser. Run as a program this module is such a parser: it is
asked in frames on its input and answers in frames on its output, and ends with whoever started it, since its input
closes and nobody reads what it writes. Leaves out: what the items mean (`normalise`).
"""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Callable, Generator, Iterable, Sequence
from dataclasses import dataclass
from typing import BinaryIO, Generic, Self, TypeVar

import msgspec

from rolloutlog.formats.foreign.normal_line import NormalLine
from rolloutlog.formats.foreign.recorded import TraceIdentity
from rolloutlog.producers.importing.files.lines import Line, read_lines
from rolloutlog.producers.importing.files.spans import FileSpan
from rolloutlog.producers.importing.parsing.normalise import count, normalise
from rolloutlog.producers.importing.parsing.updates import UpdateAt

T = TypeVar("T")

BATCH_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class ParsedBatch(Generic[T]):
    """Items of some lines of a span, in order; `size` is the bytes of those lines."""

    span: FileSpan
    items: list[T]
    size: int


@dataclass(frozen=True, slots=True)
class Pass(Generic[T]):
    """What is asked of each line, by a name that another process knows."""

    name: str
    item: Callable[[Line, FileSpan], T]
    decoder: msgspec.msgpack.Decoder[tuple[int, list[T]]]

    def read(self, spans: Iterable[FileSpan]) -> Generator[ParsedBatch[T]]:
        """All items of the spans, in batches of lines of about a megabyte."""
        for span in spans:
            items: list[T] = []
            size = 0
            for line in read_lines(span):
                items.append(self.item(line, span))
                size += len(line.text)
                if size >= BATCH_BYTES:
                    yield ParsedBatch(span, items, size)
                    items, size = [], 0
            yield ParsedBatch(span, items, size)


COUNT = Pass("count", count, msgspec.msgpack.Decoder(tuple[int, list[TraceIdentity | UpdateAt | None]]))
READ = Pass("read", normalise, msgspec.msgpack.Decoder(tuple[int, list[NormalLine]]))


PASSES: dict[str, Pass[object]] = {COUNT.name: COUNT, READ.name: READ}  # type: ignore[dict-item]

MODULE = "rolloutlog.producers.importing.parsing.parser_pool"
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

    async def read(self, asked: Pass[T], spans: Sequence[FileSpan]) -> AsyncIterator[ParsedBatch[T]]:
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


async def _here(asked: Pass[T], spans: Sequence[FileSpan]) -> AsyncIterator[ParsedBatch[T]]:
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


def _ask(process: Process, asked: Pass[T], spans: Sequence[FileSpan]) -> None:
    if process.stdin is None:
        raise RuntimeError("a parser process has no input")
    frame = msgspec.msgpack.encode((asked.name, list(spans)))
    process.stdin.write(len(frame).to_bytes(HEAD, "little") + frame)


async def _answers(asked: Pass[T], span: FileSpan, process: Process) -> AsyncIterator[ParsedBatch[T]]:
    if process.stdout is None:
        raise RuntimeError("a parser process has no output")
    while length := int.from_bytes(await process.stdout.readexactly(HEAD), "little"):
        size, items = asked.decoder.decode(await process.stdout.readexactly(length))
        yield ParsedBatch(span, items, size)


def main() -> None:
    """Answer each (pass, spans) with a frame for each batch, and an empty one after each span."""
    gc.disable()  # parsed JSON has no cycles, and each line is gone before the next
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    asked, answers = sys.stdin.buffer, sys.stdout.buffer
    while length := int.from_bytes(asked.read(HEAD), "little"):
        name, spans = msgspec.msgpack.decode(asked.read(length), type=tuple[str, list[FileSpan]])
        for span in spans:
            _answer(PASSES[name], span, answers)


def _answer(asked: Pass[object], span: FileSpan, answers: BinaryIO) -> None:
    encode = msgspec.msgpack.Encoder().encode
    for batch in asked.read([span]):
        frame = encode((batch.size, batch.items))
        answers.write(len(frame).to_bytes(HEAD, "little"))
        answers.write(frame)
    answers.write(bytes(HEAD))
    answers.flush()


if __name__ == "__main__":
    main()
