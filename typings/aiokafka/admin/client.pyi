from collections.abc import Mapping, Sequence
from ssl import SSLContext
from typing import Any

from aiokafka.abc import AbstractTokenProvider
from aiokafka.admin.config_resource import ConfigResource
from aiokafka.admin.new_partitions import NewPartitions
from aiokafka.admin.new_topic import NewTopic
from aiokafka.admin.records_to_delete import RecordsToDelete
from aiokafka.client import AIOKafkaClient
from aiokafka.protocol.api import Request, Response
from aiokafka.structs import OffsetAndMetadata, TopicPartition

class AIOKafkaAdminClient:
    """Most calls return the broker's raw answer and don't raise on the error codes inside: look at them."""

    _client: AIOKafkaClient
    def __init__(
        self,
        *,
        bootstrap_servers: str | list[str] = "localhost",
        client_id: str = ...,
        request_timeout_ms: int = 40000,
        connections_max_idle_ms: int = 540000,
        retry_backoff_ms: int = 100,
        metadata_max_age_ms: int = 300000,
        security_protocol: str = "PLAINTEXT",
        ssl_context: SSLContext | None = None,
        sasl_mechanism: str = "PLAIN",
        sasl_plain_username: str | None = None,
        sasl_plain_password: str | None = None,
        sasl_kerberos_service_name: str = "kafka",
        sasl_kerberos_domain_name: str | None = None,
        sasl_oauth_token_provider: AbstractTokenProvider | None = None,
    ) -> None: ...
    async def start(self) -> None: ...
    async def close(self) -> None: ...
    async def _send_request(self, request: Request[Any], node_id: int | None = None) -> Response: ...
    async def create_topics(
        self, new_topics: Sequence[NewTopic], timeout_ms: int | None = None, validate_only: bool = False
    ) -> Response: ...
    async def delete_topics(self, topics: Sequence[str], timeout_ms: int | None = None) -> Response: ...
    async def list_topics(self) -> list[str]: ...
    async def describe_topics(self, topics: Sequence[str] | None = None) -> list[dict[str, Any]]: ...
    async def describe_cluster(self) -> dict[str, Any]: ...
    async def describe_configs(
        self, config_resources: Sequence[ConfigResource], include_synonyms: bool = False
    ) -> list[Response]: ...
    async def alter_configs(self, config_resources: Sequence[ConfigResource]) -> list[Response]: ...
    async def create_partitions(
        self,
        topic_partitions: Mapping[str, NewPartitions],
        timeout_ms: int | None = None,
        validate_only: bool = False,
    ) -> Response: ...
    async def describe_consumer_groups(
        self,
        group_ids: Sequence[str],
        group_coordinator_id: int | None = None,
        include_authorized_operations: bool = False,
    ) -> list[Response]: ...
    async def list_consumer_groups(self, broker_ids: Sequence[int] | None = None) -> list[tuple[Any, ...]]: ...
    async def find_coordinator(self, group_id: str, coordinator_type: int = 0) -> int: ...
    async def list_consumer_group_offsets(
        self,
        group_id: str,
        group_coordinator_id: int | None = None,
        partitions: Sequence[TopicPartition] | None = None,
    ) -> dict[TopicPartition, OffsetAndMetadata]: ...
    async def delete_records(
        self, records_to_delete: Mapping[TopicPartition, RecordsToDelete], timeout_ms: int | None = None
    ) -> dict[TopicPartition, int]: ...
