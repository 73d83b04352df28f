from typing import Any
from collections.abc import Sequence

from aiokafka.protocol.api import Request

class FetchRequest(Request[Any]):
    """Isolation 1 is read_committed; topics are (name, [(partition, offset, bytes)])."""

    def __init__(
        self,
        max_wait_time: int,
        min_bytes: int,
        max_bytes: int,
        isolation_level: int,
        topics: Sequence[tuple[str, Sequence[tuple[int, int, int]]]],
        rack_id: str = "",
    ) -> None: ...
