"""What a failure of the client means, and ending a client that failed.

Guarantees: every error of aiokafka becomes one of ours that says what to do; a producer is stopped in bounded time, and
the futures that it leaves are looked at, so that asyncio prints no "never retrieved" (design/exactly-once#stopping).
Leaves out: trying again, which is the caller's decision.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

from aiokafka import AIOKafkaProducer
from aiokafka.errors import (
    ClusterAuthorizationFailedError,
    GroupAuthorizationFailedError,
    InvalidProducerEpoch,
    KafkaConnectionError,
    KafkaError,
    KafkaTimeoutError,
    MessageSizeTooLargeError,
    NodeNotReadyError,
    ProducerFenced,
    RequestTimedOutError,
    TopicAuthorizationFailedError,
    TransactionalIdAuthorizationFailed,
    UnknownTopicOrPartitionError,
)

from rolloutlog.contract.errors import (
    BrokerUnreachable,
    ClientFailed,
    Fenced,
    NotAllowed,
    RecordTooLarge,
    RolloutlogError,
    TopicMissing,
)
from rolloutlog.kafka.client.acls import GROUP, TOPIC, TRANSACTIONAL_ID, refused, rights_of
from rolloutlog.kafka.client.connection import Connection
from rolloutlog.kafka.client.inner_parts import futures_left, protocol_client_of

STOP_S = 5.0
"""Without a broker an idempotent producer waits for ever when it stops (design/exactly-once#stopping)."""

MOMENT_S = 1.0

AWAY = (KafkaConnectionError, KafkaTimeoutError, NodeNotReadyError, RequestTimedOutError, OSError)
FORBIDDEN: dict[type[BaseException], str] = {
    ClusterAuthorizationFailedError: TOPIC,  # an idempotent producer that may write no topic at all
    GroupAuthorizationFailedError: GROUP,
    TopicAuthorizationFailedError: TOPIC,
    TransactionalIdAuthorizationFailed: TRANSACTIONAL_ID,
}
"""Of what a right is missing."""


def typed_error(error: BaseException, connection: Connection, transactional_id: str | None = None) -> RolloutlogError:
    """Our error for a failure of the client."""
    where = connection.bootstrap_servers
    if isinstance(error, RolloutlogError):
        return error
    if isinstance(error, (ProducerFenced, InvalidProducerEpoch)):
        return Fenced(f"a newer writer has taken over {transactional_id or 'this transactional id'}")
    if isinstance(error, MessageSizeTooLargeError):
        return RecordTooLarge(f"a record is above the limit of {connection.max_message_bytes} bytes: {error}")
    if (resource := FORBIDDEN.get(type(error))) is not None:
        return _forbidden(error, connection, resource)
    if isinstance(error, UnknownTopicOrPartitionError):
        return TopicMissing(f"a topic of {connection.names.namespace} isn't there: {error}")
    if isinstance(error, AWAY):
        return BrokerUnreachable(f"no Kafka broker answers at {where}: {error!r}")
    return ClientFailed(f"{where} answers: {error!r}")


def _forbidden(error: BaseException, connection: Connection, resource: str) -> NotAllowed:
    """The client doesn't name the right, so those are named that our role has on the resource that it names."""
    rights = rights_of(connection.names, connection.role) if connection.role else []
    held = [right for right in rights if right.resource == resource]
    named = [right for right in held if right.name in repr(error)]
    return refused(connection.names, connection.role, connection.user, named or held, repr(error))


async def startup_error(error: BaseException, connection: Connection) -> RolloutlogError:
    """Our error for a client that didn't start; it knows more than `typed_error`, as the client names no cause."""
    found = typed_error(error, connection)
    return await connection.diagnose(error) if isinstance(found, BrokerUnreachable) else found


async def started(producer: AIOKafkaProducer, connection: Connection) -> AIOKafkaProducer:
    """Start a producer; one that doesn't start is stopped. Raises BrokerUnreachable, SecurityMismatch, NotAllowed."""
    try:
        await producer.start()
    except (KafkaError, OSError) as error:
        await stop_producer(producer)
        raise await startup_error(error, connection) from error
    except BaseException:
        await stop_producer(producer)
        raise
    return producer


async def stop_producer(producer: AIOKafkaProducer) -> None:
    """Stop a producer, whatever state it is in, in at most `STOP_S` seconds; what it still held is given up."""
    stopping = asyncio.ensure_future(producer.stop())
    try:
        await _through(stopping, producer, STOP_S)
    finally:
        retrieve_exceptions(futures_left(producer))


async def stop_client(client: Any) -> None:
    """Stop a consumer or close an admin client; a broker that is away doesn't matter any more
    (design/exactly-once#stopping)."""
    await _through(asyncio.ensure_future(_stopped(client)), client, None)


async def _through(stopping: asyncio.Future[None], client: Any, limit_s: float | None) -> None:
    """Wait until a client has stopped, at most so long; whoever is cancelled meanwhile gives it a moment more, so that
    no task and no connection of it is left. What isn't through by then is dropped."""
    try:
        await asyncio.wait({stopping}, timeout=limit_s)
    except asyncio.CancelledError:
        await asyncio.wait({stopping}, timeout=MOMENT_S)
        raise
    finally:
        # a fetch that rests after a failure is cancelled by aiokafka 0.14, whose stop takes that for its own end
        if not stopping.done() or stopping.cancelled() or stopping.exception() is not None:
            stopping.cancel()
            await protocol_client_of(client).close()
    if stopping.cancelled() or not stopping.done():
        return
    error = stopping.exception()
    if error is not None and not isinstance(error, KafkaError | OSError):
        raise error


async def _stopped(client: Any) -> None:
    await asyncio.sleep(0)  # its tasks must have begun, or aiokafka takes their end for a cancellation of ours
    await (client.stop() if hasattr(client, "stop") else client.close())


def retrieve_exceptions(futures: Iterable[asyncio.Future[Any]]) -> None:
    """Look at futures that nobody will await, those that are done and those to come."""
    for future in futures:
        future.add_done_callback(retrieve_exception)


def retrieve_exception(future: asyncio.Future[Any]) -> None:
    """Look at one that is done."""
    if not future.cancelled():
        future.exception()
