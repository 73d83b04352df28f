from collections.abc import Callable, Iterator, Sequence
from typing import Any

from aiokafka.structs import ConsumerRecord, TopicPartition

READ_COMMITTED: int

class PartitionRecords:
    """Records of a fetch without markers and aborted transactions; `next_fetch_offset` moves as it is iterated."""

    next_fetch_offset: int
    def __init__(
        self,
        tp: TopicPartition,
        records: object,
        aborted_transactions: Sequence[tuple[int, int]] | None,
        fetch_offset: int,
        key_deserializer: Callable[[bytes], Any] | None,
        value_deserializer: Callable[[bytes], Any] | None,
        check_crcs: bool,
        isolation_level: int,
    ) -> None: ...
    def __iter__(self) -> Iterator[ConsumerRecord]: ...
