"""Handles: where one record lies on the log, and how big it is.

Guarantees: a handle reads and writes as `partition/offset/size`, and as `namespace:partition/offset/size` where the
record lies in another namespace, the source of a run (design/buffer#source). Leaves out: reading what it points at
(`rolloutlog.kafka.read.payloads`).
"""

from __future__ import annotations

import re
from typing import NamedTuple

from rolloutlog.contract.numbers import natural

NAMESPACE = r"^[A-Za-z0-9][A-Za-z0-9_-]{0,99}$"
BEFORE = 1 << 62
"""What lies in a source has a place so far below its offset: all of it comes before everything of the own log."""
_IS_NAMESPACE = re.compile(NAMESPACE)


class Handle(NamedTuple):
    """Partition and offset of a record on its topic; `size` is the value's bytes (0 where unknown), `namespace` that of
    a source, "" the own."""

    partition: int
    offset: int
    size: int = 0
    namespace: str = ""

    def __str__(self) -> str:
        own = f"{self.partition}/{self.offset}/{self.size}"
        return f"{self.namespace}:{own}" if self.namespace else own

    @property
    def place(self) -> int:
        """Its place on its partition, where what lies in a source comes first."""
        return self.offset - BEFORE if self.namespace else self.offset

    @classmethod
    def at(cls, partition: int, place: int, size: int, namespace: str) -> Handle:
        """The handle of a place; `namespace` is the source's."""
        return cls(partition, place, size) if place >= 0 else cls(partition, place + BEFORE, size, namespace)

    @classmethod
    def parse(cls, text: str) -> Handle:
        """Read `partition/offset` or `partition/offset/size`, behind `namespace:` or not; raises ValueError."""
        namespace, colon, own = text.rpartition(":")
        if colon and not _IS_NAMESPACE.fullmatch(namespace):
            raise ValueError(f"{namespace[:40]!r} is no namespace")
        parts = [natural(part) for part in own.split("/")]
        if len(parts) not in (2, 3):
            raise ValueError(f"a handle is partition/offset/size, not {text!r}")
        if colon and parts[1] >= BEFORE:
            raise ValueError(f"offset {parts[1]} lies above what a source can hold")
        partition, offset, size = (*parts, 0)[:3]
        return cls(partition, offset, size, namespace)
