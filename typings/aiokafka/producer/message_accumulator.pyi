from collections.abc import Sequence
from typing import Any

class BatchBuilder:
    def append(
        self,
        *,
        timestamp: int | None,
        key: bytes | None,
        value: bytes | None,
        headers: Sequence[tuple[str, bytes]] = ...,
    ) -> Any | None:
        """None where the batch is full or closed; `timestamp` is in milliseconds."""

    def close(self) -> None: ...
    def size(self) -> int: ...
    def record_count(self) -> int: ...
    def closed(self) -> bool: ...
