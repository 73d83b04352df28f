"""One cluster and one namespace on it, and the clients that we make there.

Guarantees: every client is made here, so all read committed records only, write idempotently with acks of all replicas
and zstd, and never a batch that the topics refuse (reference kafka 1: pitfalls 2, 13 and 14). `connect` has heard an
answer. Leaves out: what is read and written (`reading`, `writing`), and topics (`admin`).
"""

from __future__ import annotations

import asyncio
import os
import socket
from dataclasses import dataclass, field
from typing import Any, Literal

from aiokafka import AIOKafkaClient, AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import KafkaError

from rolloutlog.contract.errors import BrokerUnreachable, SettingsError
from rolloutlog.contract.settings import Settings
from rolloutlog.contract.topics import MAX_MESSAGE_BYTES, RECORD_MARGIN, Names
from rolloutlog.kafka.addresses import checked
from rolloutlog.kafka.properties import Security, read_properties, security_of
from rolloutlog.kafka.quiet import hushed, quiet_clients

CLIENT_ID = "rolloutlog"
BATCH_BYTES = 1024 * 1024
"""With aiokafka's default of 16 KiB the same records go 3 times slower (reference kafka 4)."""
LINGER_MS = 5
TRANSACTION_TIMEOUT_MS = 10_000
"""A hung producer stalls the readers of what it wrote that long (design 6.4)."""
HIDDEN_S = 2 * TRANSACTION_TIMEOUT_MS / 1000
"""A transaction that its writer left open is aborted by then."""
ANSWER_S = 10.0
REFUSED = "is it there, and does it take the credentials and certificates of command_config?"

Isolation = Literal["read_uncommitted", "read_committed"]


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
        return AIOKafkaProducer(
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

    def consumer(
        self, group_id: str | None = None, *, isolation: Isolation = "read_committed", **options: Any
    ) -> AIOKafkaConsumer:
        """A consumer that isn't started yet: no commits and no offset resets of its own. `options` are aiokafka's.

        A member of a group says host and process, so that one sees who owns what.
        """
        member: dict[str, Any] = {"client_id": f"{CLIENT_ID}-{socket.gethostname()}-{os.getpid()}"} if group_id else {}
        defaults: dict[str, Any] = {
            "auto_offset_reset": "none",
            "enable_auto_commit": False,
            "max_partition_fetch_bytes": self.max_message_bytes,
        }
        return AIOKafkaConsumer(
            group_id=group_id, isolation_level=isolation, **{**self.client_options, **member, **defaults, **options}
        )

    def admin(self) -> AIOKafkaAdminClient:
        """An admin client that isn't started yet; it doesn't fail over, so make a new one to try again."""
        return AIOKafkaAdminClient(**self.client_options)

    async def check(self, answer_s: float = ANSWER_S) -> None:
        """Raise BrokerUnreachable unless a broker answers within `answer_s` seconds."""
        client = AIOKafkaClient(**self.client_options)
        try:
            with hushed():
                await asyncio.wait_for(client.bootstrap(), answer_s)
        except ValueError as error:
            raise SettingsError(f"bootstrap_servers {self.bootstrap_servers!r} isn't host:port: {error}") from error
        except (KafkaError, OSError, TimeoutError) as error:
            said = str(error) or type(error).__name__
            hint = REFUSED if self.security else None
            raise BrokerUnreachable(f"no Kafka broker answers at {self.bootstrap_servers}: {said}", hint) from error
        finally:
            await client.close()


def connection_of(settings: Settings) -> Connection:
    """The connection that the settings describe, untried. Raises BrokerUnreachable where they name no broker."""
    properties = read_properties(settings.command_config)
    servers = settings.bootstrap_servers or properties.get("bootstrap.servers")
    if not servers:
        raise BrokerUnreachable("no bootstrap servers are set")
    names, limit = Names(settings.namespace), settings.topics.max_message_bytes
    return Connection(checked(servers), names, security_of(properties), limit)


async def connect(settings: Settings) -> Connection:
    """The connection that the settings describe, once it answers; else BrokerUnreachable."""
    quiet_clients()
    connection = connection_of(settings)
    await connection.check()
    return connection
