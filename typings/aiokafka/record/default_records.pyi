from collections.abc import Sequence

class _DefaultRecordBatchPy:
    """A batch of the newest format, read in plain Python; iterating it gives its records."""

    _buffer: bytearray
    def __init__(self, buffer: bytes | bytearray | memoryview) -> None: ...
    def _maybe_uncompress(self) -> None: ...

class DefaultRecordBatchBuilder:
    def __init__(
        self,
        *,
        magic: int,
        compression_type: int,
        is_transactional: bool,
        producer_id: int,
        producer_epoch: int,
        base_sequence: int,
        batch_size: int,
    ) -> None: ...
    def append(
        self,
        offset: int,
        timestamp: int | None,
        key: bytes | None,
        value: bytes | None,
        headers: Sequence[tuple[str, bytes | None]],
    ) -> object | None: ...
    def build(self) -> bytearray: ...
