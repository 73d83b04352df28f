"""Lines of a file, one at a time.

Guarantees: memory is bounded by the longest line; each line knows its number and its first byte, so it can be found
again; a last line without its end says so. Leaves out: what a line says (`readers`).
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import BufferedReader
from typing import IO

from rolloutlog.contract.checks import Rejected
from rolloutlog.contract.errors import MissingExtra
from rolloutlog.contract.vocabulary import RejectReason
from rolloutlog.producers.importing.sources import SourceFile

BUFFER_BYTES = 1 << 20
GZIP = b"\x1f\x8b"


@dataclass(slots=True)
class Line:
    """One line without its end; `number` counts from 1, `byte` from 0 (in what a compressed file holds).

    A file that can't be read is one line, number 0, whose `fault` says why.
    """

    file: SourceFile
    number: int
    byte: int
    raw: bytes
    ended: bool = True
    fault: Rejected | None = None

    @property
    def where(self) -> str:
        """`path:line`."""
        return f"{self.file.shown}:{self.number}"


def read_lines(file: SourceFile) -> Iterator[Line]:
    """The lines of a file. Raises MissingExtra for a compressed one without zstandard."""
    number, byte = 0, 0
    try:
        with _opened(file) as stream:
            for raw in stream:
                number += 1
                if number == 1 and raw.startswith(GZIP):
                    yield unreadable(file, "gzip data, not lines: unpack it first")
                    return
                yield Line(file, number, byte, raw.rstrip(b"\r\n"), raw.endswith(b"\n"))
                byte += len(raw)
    except OSError as error:
        yield unreadable(file, error.strerror or str(error), number, byte)


def unreadable(file: SourceFile, why: str, number: int = 0, byte: int = 0) -> Line:
    """The line that stands for what can't be read of a file from `byte` on."""
    return Line(file, number, byte, b"", fault=Rejected(RejectReason.UNREADABLE, f"{file.shown}: {why}"))


@contextmanager
def _opened(file: SourceFile) -> Generator[IO[bytes]]:
    with open(file.path, "rb", buffering=BUFFER_BYTES) as stream:
        if not file.is_compressed:
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
