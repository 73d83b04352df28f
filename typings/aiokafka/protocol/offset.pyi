from typing import Any
from collections.abc import Sequence

from aiokafka.protocol.api import Request

class OffsetRequest(Request[Any]):
    """ListOffsets; a timestamp of -1 asks for the end (isolation 1: the last stable one), -2 for the beginning."""

    def __init__(
        self, replica_id: int, isolation_level: int, topics: Sequence[tuple[str, Sequence[tuple[int, int]]]]
    ) -> None: ...
