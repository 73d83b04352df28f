"""Handles: where one record lies on the log, and how big it is.

Guarantees: a handle reads and writes as `partition/offset/size`. Leaves out: reading what it points at
(`rolloutlog.kafka.read.payloads`).
"""

from __future__ import annotations

from typing import NamedTuple

from rolloutlog.contract.numbers import natural


class Handle(NamedTuple):
    """Partition and offset of a record on its topic; `size` is the value's bytes (0 where unknown)."""

    partition: int
    offset: int
    size: int = 0

    def __str__(self) -> str:
        return f"{self.partition}/{self.offset}/{self.size}"

    @classmethod
    def parse(cls, text: str) -> Handle:
        """Read `partition/offset` or `partition/offset/size`; raises ValueError."""
        parts = [natural(part) for part in text.split("/")]
        if len(parts) not in (2, 3):
            raise ValueError(f"a handle is partition/offset/size, not {text!r}")
        return cls(*parts)
