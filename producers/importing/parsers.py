"""A pass over spans, in this process or shared among several.

Guarantees: batches come in the order of the lines, whoever read them; a parser process ends when this one does, since
nobody reads what it writes; what is read ahead is bounded, by a few batches a parser. Leaves out: what the items mean.
"""

from __future__ import annotations

import asyncio
import os
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Sequence
from typing import TypeVar

import msgspec

from rolloutlog.producers.importing.passes import Batch, Pass
from rolloutlog.producers.importing.span import Span
from rolloutlog.producers.importing.spans import SPAN_BYTES

T = TypeVar("T")

MODULE = "rolloutlog.producers.importing.parser_process"
HEAD = 4
"""Bytes of a frame's length, little-endian; a frame of length 0 ends a span."""
READ_AHEAD = 1 << 20


def parsers_for(size: int) -> int:
    """How many processes are worth it for so many bytes: one a core, and none for little."""
    wanted = min(os.cpu_count() or 1, size // (2 * SPAN_BYTES))
    return wanted if wanted > 1 else 0


async def parsed(asked: Pass[T], spans: Sequence[Span], processes: int) -> AsyncIterator[Batch[T]]:
    """Batches of all spans, in order."""
    if processes == 0:
        async for batch in _here(asked, spans):
            yield batch
        return
    parsers = [await _started(asked, spans[number::processes]) for number in range(processes)]
    try:
        for number, span in enumerate(spans):
            async for batch in _answers(asked, span, parsers[number % processes]):
                yield batch
    finally:
        for parser in parsers:
            await _ended(parser)


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


async def _started(asked: Pass[T], spans: Sequence[Span]) -> Process:
    parser = await asyncio.create_subprocess_exec(
        sys.executable, "-m", MODULE, stdin=PIPE, stdout=PIPE, limit=READ_AHEAD, start_new_session=True
    )
    if parser.stdin is None:
        raise RuntimeError("a parser process has no input")
    parser.stdin.write(msgspec.msgpack.encode((asked.name, list(spans))))
    parser.stdin.close()
    return parser


async def _answers(asked: Pass[T], span: Span, parser: Process) -> AsyncIterator[Batch[T]]:
    if parser.stdout is None:
        raise RuntimeError("a parser process has no output")
    while length := int.from_bytes(await parser.stdout.readexactly(HEAD), "little"):
        size, items = asked.decoder.decode(await parser.stdout.readexactly(length))
        yield Batch(span, items, size)


async def _ended(parser: Process) -> None:
    if parser.returncode is None:
        parser.kill()
    await parser.wait()
