"""New lines of a file that is still written.

Guarantees: a line is taken once it has its end, never half; a file that was rewritten, or that shrank, is seen by the
last line that was taken from it, and begins anew; a chunk that was compressed under its old name goes on where the
plain one ended. Leaves out: which files there are, and what their lines say.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import islice, takewhile
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from rolloutlog.contract.events.validation import Rejected
from rolloutlog.contract.ids import digest_of, id_of
from rolloutlog.contract.vocabulary import RejectReason
from rolloutlog.producers.importing.files.found_files import SourceFile
from rolloutlog.producers.importing.files.lines import Line, head_of, is_whole, read_lines
from rolloutlog.producers.importing.files.spans import FileSpan

CHUNK_BYTES = 4 << 20
CHUNK_LINES = 512
PACKED = ".zst"


class Change(StrEnum):
    """What happened to a file that doesn't merely grow."""

    REWRITTEN = "rewritten"
    SHRUNK = "shrunk"


class Cursor(Struct):
    """How far a file was taken: next byte, lines so far, and where the last one began with its digest."""

    byte: int = 0
    line: int = 0
    last_byte: int = 0
    last_digest: str = ""

    def after(self, line: Line) -> Cursor:
        """The cursor once that line is taken; what can't be read moves nothing."""
        if line.fault is not None:
            return self
        return Cursor(line.byte + len(line.text), self.line + 1, line.byte, digest_of(line.text))

    def as_fact(self) -> dict[str, Any]:
        """As the body of `cursor.moved`."""
        return msgspec.to_builtins(self)


@dataclass(slots=True)
class Chunk:
    """Some new lines of a file, and the cursor after them. `change`: why it begins anew."""

    span: FileSpan
    lines: list[Line] = field(default_factory=list[Line])
    cursor: Cursor = field(default_factory=Cursor)
    change: Change | None = None


def file_key(path: Path) -> str | None:
    """Names a file by its path and how it begins, so that a replaced one is another and a compressed one the same.

    None while it has no more than a part of its first line.
    """
    head = head_of(path)
    if not is_whole(head):
        return None
    return id_of("followed", str(path.absolute()).removesuffix(PACKED), digest_of(head))


def new_lines(file: SourceFile, cursor: Cursor) -> Chunk:
    """The next whole lines after the cursor, some megabytes of them at most; none where nothing was added."""
    span = FileSpan(str(file.path), file.origin, start=cursor.byte)
    if (change := _change(file, cursor)) is not None:
        return Chunk(span, [_shrunk(file, cursor)] if change is Change.SHRUNK else [], Cursor(), change)
    chunk, size = Chunk(span, [], cursor), 0
    for line in islice(_lines(span), CHUNK_LINES):
        if line.fault is None and not line.is_ended:
            break
        chunk.lines.append(line)
        chunk.cursor = chunk.cursor.after(line)
        size += len(line.text)
        if size >= CHUNK_BYTES:
            break
    return chunk


def passed_lines(file: SourceFile, cursor: Cursor) -> Iterator[Line]:
    """The lines that lie before the cursor."""
    return takewhile(lambda line: line.byte < cursor.byte, read_lines(FileSpan(str(file.path), file.origin)))


def _shrunk(file: SourceFile, cursor: Cursor) -> Line:
    size = file.path.stat().st_size
    return Line(size, b"", Rejected(RejectReason.TRUNCATED, f"shrank to {size} bytes; {cursor.byte} were read before"))


def _lines(span: FileSpan) -> Iterator[Line]:
    """Lines from the span's start; a compressed file is read from its beginning."""
    if not span.is_compressed:
        yield from read_lines(span)
        return
    yield from (line for line in read_lines(FileSpan(span.path, span.origin)) if line.byte >= span.start)


def _change(file: SourceFile, cursor: Cursor) -> Change | None:
    if cursor.byte == 0:
        return None
    if not file.is_compressed and file.path.stat().st_size < cursor.byte:
        return Change.SHRUNK
    last = next(_lines(FileSpan(str(file.path), file.origin, start=cursor.last_byte)), None)
    is_same = last is not None and digest_of(last.text) == cursor.last_digest
    return None if is_same else Change.REWRITTEN
