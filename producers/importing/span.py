"""A piece of a file that can be read on its own.

Guarantees: it begins at the first byte of a line. Leaves out: cutting files into pieces (`spans`), and the lines
themselves (`lines`).
"""

from __future__ import annotations

from msgspec import Struct

from rolloutlog.producers.importing.recorded import Origin


class Span(Struct, frozen=True):
    """The lines of a file that begin at or after byte `start` and before `end`; to its end where that is None."""

    path: str
    origin: Origin
    start: int = 0
    end: int | None = None
    fault: str | None = None
    """Why it can't be read, where that is known already."""

    @property
    def is_compressed(self) -> bool:
        """True for a chunk that was compressed when it was full."""
        return self.path.endswith(".zst")
