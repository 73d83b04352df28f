"""The readiness test: answers of Kafka 4.4 read by hand, on a plain socket."""

from __future__ import annotations

import socket
import threading

import pytest

from rolloutlog.broker import EmbeddedKafka
from rolloutlog.broker.process import frames as wire
from rolloutlog.broker.process.ports import HOST, free_ports
from rolloutlog.broker.process.readiness import what_is_missing
from rolloutlog.broker.process.state import NodeState


@pytest.mark.broker
def test_a_started_broker_is_ready(kafka_broker: EmbeddedKafka) -> None:
    node = kafka_broker.state.node(1)
    known = wire.metadata(node.port, timeout=5)
    assert (known.cluster_id, known.nodes, known.leaderless) == (kafka_broker.state.cluster_id, {1}, 0)
    assert wire.has_coordinator(node.port, "group", timeout=5)
    assert wire.has_coordinator(node.port, "transaction", timeout=5)
    assert what_is_missing([node], whole=True) is None


@pytest.mark.broker
def test_a_node_that_isn_t_there_is_missed(kafka_broker: EmbeddedKafka) -> None:
    node = kafka_broker.state.node(1)
    absent = NodeState(id=2, port=free_ports(1)[0], controller_port=1)
    assert what_is_missing([node, absent], whole=True) == "node 1 doesn't see node 2"
    assert "node 2 doesn't answer on port" in str(what_is_missing([absent], whole=True))


def test_a_server_that_hangs_up_is_no_broker() -> None:
    with socket.create_server((HOST, 0)) as server:
        node = NodeState(id=1, port=server.getsockname()[1], controller_port=1)
        server.settimeout(5)
        threading.Thread(target=hang_up, args=[server], daemon=True).start()
        assert "doesn't answer" in str(what_is_missing([node], whole=True))


def hang_up(server: socket.socket) -> None:
    """Take one connection and close it."""
    connection, _ = server.accept()
    connection.close()
