"""The two requests of Kafka's protocol that tell whether a broker is ready, by hand on a plain socket.

Guarantees: no Kafka client is needed, so the broker's room stands alone. Leaves out: everything else of the protocol
(`rolloutlog.kafka`). Layouts: kafka.apache.org/protocol, Metadata v5 and FindCoordinator v1, both without tagged
fields.
"""

from __future__ import annotations

import io
import socket
import struct
from dataclasses import dataclass
from typing import Literal

from rolloutlog.broker.process.ports import HOST

METADATA, METADATA_VERSION = 3, 5
FIND_COORDINATOR, FIND_COORDINATOR_VERSION = 10, 1
COORDINATOR_TYPES = {"group": 0, "transaction": 1}
CLIENT = b"rolloutlog"
ALL_TOPICS = struct.pack(">i?", -1, False)  # every topic, creating none


@dataclass(frozen=True, slots=True)
class Metadata:
    """What a node knows: the nodes that are in service, and how many partitions have no leader."""

    cluster_id: str
    nodes: frozenset[int]
    leaderless: int


def metadata(port: int, timeout: float) -> Metadata:
    """Ask the node at `port`. Raises OSError when it doesn't answer within `timeout` seconds."""
    reader = _Reader(_ask(port, METADATA, METADATA_VERSION, ALL_TOPICS, timeout))
    reader.int32()  # throttle time
    nodes = frozenset(_node(reader) for _ in range(reader.int32()))
    cluster_id = reader.string()
    reader.int32()  # controller: in KRaft any node
    return Metadata(cluster_id, nodes, sum(_leaderless(reader) for _ in range(reader.int32())))


def has_coordinator(port: int, kind: Literal["group", "transaction"], timeout: float) -> bool:
    """Whether groups or transactions have a coordinator; asking makes the broker create the topic that it needs."""
    body = _string(CLIENT) + struct.pack(">b", COORDINATOR_TYPES[kind])
    reader = _Reader(_ask(port, FIND_COORDINATOR, FIND_COORDINATOR_VERSION, body, timeout))
    reader.int32()  # throttle time
    return reader.int16() == 0


def _node(reader: _Reader) -> int:
    id = reader.int32()
    reader.string()  # host
    reader.int32()  # port
    reader.string()  # rack
    return id


def _leaderless(reader: _Reader) -> int:
    """Partitions of one topic that have no leader."""
    reader.int16()  # error
    reader.string()  # name
    reader.int8()  # internal
    missing = 0
    for _ in range(reader.int32()):
        reader.int16()  # error
        reader.int32()  # partition
        missing += reader.int32() < 0  # leader
        for _ in ("replicas", "in sync", "offline"):
            reader.skip(4 * reader.int32())
    return missing


def _ask(port: int, api: int, version: int, body: bytes, timeout: float) -> io.BytesIO:
    message = struct.pack(">hhi", api, version, 1) + _string(CLIENT) + body
    with socket.create_connection((HOST, port), timeout) as connection, connection.makefile("rb") as answer:
        connection.sendall(struct.pack(">i", len(message)) + message)
        header = answer.read(4)
        if len(header) < 4:
            raise ConnectionResetError("the broker closed the connection")
        received = answer.read(struct.unpack(">i", header)[0])
    return io.BytesIO(received[4:])  # without the correlation id: one request a connection


def _string(text: bytes) -> bytes:
    return struct.pack(">h", len(text)) + text


class _Reader:
    """Big-endian fields, one after the other."""

    def __init__(self, stream: io.BytesIO) -> None:
        self._stream = stream

    def int8(self) -> int:
        return int.from_bytes(self._stream.read(1), "big", signed=True)

    def int16(self) -> int:
        return int.from_bytes(self._stream.read(2), "big", signed=True)

    def int32(self) -> int:
        return int.from_bytes(self._stream.read(4), "big", signed=True)

    def string(self) -> str:
        """A nullable string; null reads as the empty one."""
        return self._stream.read(max(0, self.int16())).decode()

    def skip(self, size: int) -> None:
        self._stream.seek(size, io.SEEK_CUR)
