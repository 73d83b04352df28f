"""A Parquet file that is written row by row.

Guarantees: memory is bounded by a batch of rows. Leaves out: what is in a row (`rolloutlog.formats.writers`).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

from rolloutlog.contract.errors import MissingExtra
from rolloutlog.formats.writers.parquet_rows import row_of, schema
from rolloutlog.formats.writers.standing import StandingRollout

BATCH_BYTES = 32 << 20


class ParquetFile:
    """A Parquet file that is written row by row. Raises MissingExtra without pyarrow."""

    def __init__(self, path: Path) -> None:
        try:
            import pyarrow
            import pyarrow.parquet
        except ImportError as error:
            raise MissingExtra("parquet", "pyarrow") from error
        self._arrow: Any = pyarrow
        self._schema: Any = schema(pyarrow)
        self._writer: Any = cast("Any", pyarrow.parquet).ParquetWriter(path, self._schema, compression="zstd")
        self._rows: list[dict[str, Any]] = []
        self._size = 0

    def add(self, standing: StandingRollout) -> None:
        """Write a row, some at a time."""
        self._rows.append(row_of(standing))
        self._size += len(standing.event.value or b"")
        if self._size >= BATCH_BYTES:
            self._flush()

    def close(self) -> None:
        """Write what is left and the file's end."""
        self._flush()
        self._writer.close()

    def _flush(self) -> None:
        if self._rows:
            self._writer.write_table(self._arrow.Table.from_pylist(self._rows, schema=self._schema))
        self._rows, self._size = [], 0
