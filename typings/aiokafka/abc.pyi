from abc import ABC, abstractmethod
from collections.abc import Awaitable

from aiokafka.structs import TopicPartition

class ConsumerRebalanceListener(ABC):
    """Both methods may be plain functions or coroutines; the consumer waits for them before it goes on."""

    @abstractmethod
    def on_partitions_revoked(self, revoked: list[TopicPartition]) -> Awaitable[None] | None: ...
    @abstractmethod
    def on_partitions_assigned(self, assigned: list[TopicPartition]) -> Awaitable[None] | None: ...

class AbstractTokenProvider(ABC):
    @abstractmethod
    async def token(self) -> str: ...
    def extensions(self) -> dict[str, str]: ...
