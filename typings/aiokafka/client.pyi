from asyncio import Future
from collections.abc import Iterable
from ssl import SSLContext
from typing import Any

from aiokafka.abc import AbstractTokenProvider
from aiokafka.cluster import ClusterMetadata
from aiokafka.protocol.api import Request, Response

class AIOKafkaClient:
    cluster: ClusterMetadata
    def __init__(
        self,
        *,
        bootstrap_servers: str | list[str] = "localhost",
        client_id: str = ...,
        metadata_max_age_ms: int = 300000,
        request_timeout_ms: int = 40000,
        retry_backoff_ms: int = 100,
        ssl_context: SSLContext | None = None,
        security_protocol: str = "PLAINTEXT",
        connections_max_idle_ms: int = 540000,
        sasl_mechanism: str = "PLAIN",
        sasl_plain_username: str | None = None,
        sasl_plain_password: str | None = None,
        sasl_kerberos_service_name: str = "kafka",
        sasl_kerberos_domain_name: str | None = None,
        sasl_oauth_token_provider: AbstractTokenProvider | None = None,
    ) -> None: ...
    @property
    def hosts(self) -> list[tuple[str, int, int]]: ...
    async def bootstrap(self) -> None: ...
    async def close(self) -> None: ...
    async def ready(self, node_id: int | str) -> bool: ...
    async def send(self, node_id: int | str, request: Request[Any]) -> Response: ...
    async def fetch_all_metadata(self) -> ClusterMetadata: ...
    async def coordinator_lookup(self, coordinator_type: int, coordinator_key: str) -> int: ...
    def force_metadata_update(self) -> Future[bool]: ...
    def add_topic(self, topic: str) -> Future[bool]: ...
    def set_topics(self, topics: Iterable[str]) -> Future[bool]: ...
    def get_random_node(self) -> int | str | None: ...
