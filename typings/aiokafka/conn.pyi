from asyncio import Future
from typing import Any

from aiokafka.protocol.api import Request

class AIOKafkaConnection:
    """One connection to one node, which says itself what went wrong."""

    async def send(self, request: Request[Any], expect_response: bool = True) -> Any: ...
    def close(self, reason: int | None = None, exc: BaseException | None = None) -> Future[None] | None: ...

async def create_conn(host: str, port: int, **options: Any) -> AIOKafkaConnection: ...
