"""Lines of a file, one at a time.

Guarantees: memory is bounded by the longest line; each line knows its first byte, so it can be found again; a last line
without its end says so, and so does a compressed file that was cut. Leaves out: what a line says
(`rolloutlog.formats.readers`).
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from typing import IO

from rolloutlog.contract.errors import MissingExtra
from rolloutlog.contract.events.validation import Rejected
from rolloutlog.contract.vocabulary import RejectReason
from rolloutlog.formats.foreign.recorded import Origin
from rolloutlog.producers.importing.files.spans import FileSpan
from rolloutlog.producers.importing.files.zstd_frames import is_cut

BUFFER_BYTES = 1 << 20
HEAD_BYTES = 4096
BOM = b"\xef\xbb\xbf"
"""What some editors write before UTF-8 text; no part of the first line."""


@dataclass(slots=True)
class Line:
    """One line, with its end, and where it begins: bytes from 0, in what a compressed file holds.

    What can't be read of a file is one line whose `fault` says why.
    """

    byte: int
    text: bytes
    fault: Rejected | None = None

    @property
    def is_ended(self) -> bool:
        """False for a last line whose writer was cut off, or isn't done."""
        return self.text.endswith(b"\n")

    @property
    def raw(self) -> memoryview:
        """The line without its end, not copied."""
        end = 2 if self.text.endswith(b"\r\n") else int(self.is_ended)
        return memoryview(self.text)[: len(self.text) - end]


def read_lines(span: FileSpan) -> Iterator[Line]:
    """The lines that begin in a span."""
    byte = span.start
    if span.fault is not None:
        yield _unreadable(span, byte, span.fault)
        return
    try:
        with _opened(span) as stream:
            for text in stream:
                mark = len(BOM) if byte == 0 and text.startswith(BOM) else 0
                yield Line(byte + mark, text[mark:])
                byte += len(text)
                if span.end is not None and byte >= span.end:
                    return
        if span.is_compressed and _is_cut(span):
            yield Line(byte, b"")  # what is missing begins here: a line without its end
    except OSError as error:
        yield _unreadable(span, byte, error.strerror or str(error))


def head_of(path: Path) -> bytes:
    """How a file begins: its first line, or as much of it as `HEAD_BYTES`; empty where it can't be read."""
    return first_line(beginning_of(path))


def beginning_of(path: Path) -> bytes:
    """The first `HEAD_BYTES` of what a file holds; empty where it can't be read. Raises MissingExtra."""
    try:
        with _opened(FileSpan(str(path), Origin())) as stream:
            return stream.read(HEAD_BYTES)
    except OSError:
        return b""


def first_line(beginning: bytes) -> bytes:
    """The first line of it, or all where that is longer."""
    return beginning[: beginning.find(b"\n") + 1] or beginning


def is_whole(head: bytes) -> bool:
    """True for a head that won't change while its file grows."""
    return len(head) >= HEAD_BYTES or head.endswith(b"\n")


def _is_cut(span: FileSpan) -> bool:
    with open(span.path, "rb") as stream:
        return is_cut(stream)


def _unreadable(span: FileSpan, byte: int, why: str) -> Line:
    return Line(byte, b"", Rejected(RejectReason.UNREADABLE, f"{span.path}: {why}"))


@contextmanager
def _opened(span: FileSpan) -> Generator[IO[bytes]]:
    with open(span.path, "rb", buffering=BUFFER_BYTES) as stream:
        if not span.is_compressed:
            stream.seek(span.start)
            yield stream
            return
        try:
            import zstandard
        except ImportError as error:
            raise MissingExtra("import", "zstandard") from error
        reader = zstandard.ZstdDecompressor().stream_reader(stream, read_across_frames=True)
        try:
            yield BufferedReader(reader, BUFFER_BYTES)
        except zstandard.ZstdError as error:
            raise OSError(0, f"not zstd: {error}") from error
