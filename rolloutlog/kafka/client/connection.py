"""One cluster and one namespace on it, and the clients that we make there.

Guarantees: every client is made here, so all read committed records only, write idempotently with acks of all replicas
and zstd, and never a batch that the topics refuse (design/exactly-once#sends and #defaults). `connect` has heard an
answer, and that the user has the rights that its role needs on topics, so that nothing is refused halfway. Leaves out:
what is read and written (`reading`, `writing`), and topics (`admin`).
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from aiokafka import AIOKafkaClient, AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import KafkaError

from rolloutlog.contract.errors import BrokerUnreachable, NotAllowed, RolloutlogError, SettingsError
from rolloutlog.contract.roles import Role
from rolloutlog.contract.settings import Settings
from rolloutlog.contract.topics import MAX_MESSAGE_BYTES, RECORD_MARGIN, Names, Topic
from rolloutlog.kafka.client.acls import Right, lacking, refused, topics_of
from rolloutlog.kafka.client.addresses import checked_addresses
from rolloutlog.kafka.client.handshake import diagnose
from rolloutlog.kafka.client.inner_parts import addresses_of, close_at_once
from rolloutlog.kafka.client.metadata import TopicMetadata, fetch_metadata
from rolloutlog.kafka.client.properties import Properties, Security, read_properties, security_of
from rolloutlog.kafka.client.quiet import quiet_clients, silenced

CLIENT_ID = "rolloutlog"
BATCH_BYTES = 1024 * 1024
"""With aiokafka's default of 16 KiB the same records go 3 times slower (design/exactly-once#defaults)."""
LINGER_MS = 5
TRANSACTION_TIMEOUT_MS = 10_000
"""A hung producer stalls the readers of what it wrote that long (design/exactly-once#loop)."""
HIDDEN_S = 2 * TRANSACTION_TIMEOUT_MS / 1000
"""A transaction that its writer left open is aborted by then."""
ANSWER_S = 10.0

Isolation = Literal["read_uncommitted", "read_committed"]


def member_name(process: int) -> str:
    """What a member of a group calls itself, by its host and process."""
    return f"{CLIENT_ID}-{socket.gethostname()}-{process}"


@dataclass(frozen=True, slots=True)
class Connection:
    """How to reach the cluster, and the namespace. `max_message_bytes` is the limit of the run's topics.

    `partitions` is P where the run's declaration was read: then nothing is written to topics that have another number.
    """

    bootstrap_servers: str
    names: Names
    security: Security = field(default_factory=dict[str, Any], repr=False)
    max_message_bytes: int = MAX_MESSAGE_BYTES
    partitions: int | None = None
    role: Role | None = None
    """Who we are on the log, which an error about missing rights names."""
    properties: Properties = field(default_factory=dict[str, str], repr=False)
    """What `security` was made of, for a process that is told it."""

    @property
    def max_record_bytes(self) -> int:
        """Longest record (`Outgoing.size`) that may be sent; above it the body goes to the blob store."""
        return self.max_message_bytes - RECORD_MARGIN

    @property
    def client_options(self) -> dict[str, Any]:
        """What every kind of client takes."""
        return {"bootstrap_servers": self.bootstrap_servers, "client_id": CLIENT_ID, **self.security}

    def producer(
        self,
        transactional_id: str | None = None,
        *,
        linger_ms: int = LINGER_MS,
        transaction_timeout_ms: int = TRANSACTION_TIMEOUT_MS,
    ) -> AIOKafkaProducer:
        """A producer that isn't started yet; `max_request_size` leaves room for the framing of headers."""
        producer = AIOKafkaProducer(
            acks="all",
            enable_idempotence=True,
            compression_type="zstd",
            max_batch_size=min(BATCH_BYTES, self.max_record_bytes),
            max_request_size=self.max_message_bytes - RECORD_MARGIN // 2,
            linger_ms=linger_ms,
            transactional_id=transactional_id,
            transaction_timeout_ms=transaction_timeout_ms,
            **self.client_options,
        )
        return close_at_once(producer)

    def consumer(
        self, group_id: str | None = None, *, isolation: Isolation = "read_committed", **options: Any
    ) -> AIOKafkaConsumer:
        """A consumer that isn't started yet: no commits and no offset resets of its own. `options` are aiokafka's.

        A member of a group says host and process, so that one sees who owns what.
        """
        member: dict[str, Any] = {"client_id": member_name(os.getpid())} if group_id else {}
        defaults: dict[str, Any] = {
            "auto_offset_reset": "none",
            "enable_auto_commit": False,
            "max_partition_fetch_bytes": self.max_message_bytes,
        }
        consumer = AIOKafkaConsumer(
            group_id=group_id, isolation_level=isolation, **{**self.client_options, **member, **defaults, **options}
        )
        return close_at_once(consumer)

    def admin(self) -> AIOKafkaAdminClient:
        """An admin client that isn't started yet; it doesn't fail over, so make a new one to try again."""
        return close_at_once(AIOKafkaAdminClient(**self.client_options))

    def client(self) -> AIOKafkaClient:
        """A client for requests of our own, not bootstrapped yet."""
        return close_at_once(AIOKafkaClient(**self.client_options))

    @property
    def user(self) -> str | None:
        """Who we are to the cluster; None where a certificate says it, or nobody asks."""
        return self.security.get("sasl_plain_username")

    def refused(self, resource: str, name: str, operations: Sequence[str], answer: str = "") -> NotAllowed:
        """The error for a right that isn't there: who lacks what, and which role needs it."""
        right = Right(self.role or Role.OPERATOR, resource, name, "literal", tuple(operations))
        return refused(self.names, self.role, self.user, [right], answer)

    async def check(self, topics: Sequence[Topic] = (), answer_s: float = ANSWER_S) -> None:
        """Raise unless a broker answers within `answer_s` seconds and our role may do its work on these topics.

        BrokerUnreachable, SecurityMismatch, NotAllowed.
        """
        client = self.client()
        try:
            with silenced():
                await asyncio.wait_for(self._ask(client, topics), answer_s)
        except ValueError as error:
            raise SettingsError(f"bootstrap_servers {self.bootstrap_servers!r} isn't host:port: {error}") from error
        except (KafkaError, OSError, TimeoutError) as error:
            raise await self.diagnose(error, client) from error
        finally:
            await client.close()

    async def diagnose(self, error: BaseException, client: AIOKafkaClient | None = None) -> RolloutlogError:
        """What a failure to reach the cluster was, in words: the client's own error names no cause."""
        with silenced():
            found = await diagnose(addresses_of(client or self.client()), self.client_options)
        return found or BrokerUnreachable(
            f"no Kafka broker answers at {self.bootstrap_servers}: {str(error) or type(error).__name__}"
        )

    async def _ask(self, client: AIOKafkaClient, topics: Sequence[Topic]) -> None:
        await client.bootstrap()
        if self.role is None or not topics:
            return
        seen = await fetch_metadata(client, map(self.names.topic, topics))
        said = [(topic, found.allowed) for topic in topics if (found := seen[self.names.topic(topic)])]
        known = [(topic, allowed) for topic, allowed in said if allowed is not None]
        if lacks := lacking(self.names, self.role, known):
            raise refused(self.names, self.role, self.user, lacks, _hidden(seen.values()))


def connection_of(settings: Settings) -> Connection:
    """The connection that the settings describe, untried. Raises BrokerUnreachable where they name no broker."""
    properties = read_properties(settings.command_config)
    servers = settings.bootstrap_servers or properties.get("bootstrap.servers")
    if not servers:
        raise BrokerUnreachable("no bootstrap servers are set")
    names, limit = Names(settings.namespace), settings.topics.max_message_bytes
    security = security_of(properties)
    return Connection(checked_addresses(servers), names, security, limit, properties=properties)


async def connect(settings: Settings, role: Role | None = None, topics: Sequence[Topic] | None = None) -> Connection:
    """The connection that the settings describe, once it answers and has what the role needs on its topics.

    `topics` are those that matter now, where they aren't all of the role's. Raises BrokerUnreachable, SecurityMismatch,
    NotAllowed.
    """
    quiet_clients()
    connection = replace(connection_of(settings), role=role)
    await connection.check(topics_of(role) if topics is None else topics)
    return connection


def _hidden(seen: Iterable[TopicMetadata]) -> str:
    """What Kafka can't tell: to who may not see a topic it is as if there were none."""
    return "of topics that one may not see, Kafka doesn't say whether they are there" * any(t.is_hidden for t in seen)
