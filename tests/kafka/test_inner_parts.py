"""The inner parts of aiokafka, one test a use: what fails here says what breaks with another version of the client."""

from __future__ import annotations

import ast
import asyncio
import importlib
import inspect
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import requires
from pathlib import Path
from typing import Any

import pytest
from aiokafka.coordinator.protocol import ConsumerProtocolMemberAssignment
from aiokafka.errors import KafkaConnectionError

import rolloutlog
from rolloutlog.contract.errors import ClientUnsupported
from rolloutlog.contract.settings import Settings
from rolloutlog.contract.topics import Topic
from rolloutlog.kafka.client.admin import create_topics
from rolloutlog.kafka.client.connection import Connection
from rolloutlog.kafka.client.inner_parts import (
    REBALANCING,
    SERIES,
    addresses_of,
    assigned_partitions,
    check_version,
    futures_left,
    list_offsets,
    protocol_client_of,
    try_address,
)
from rolloutlog.kafka.read.ends import ends

HOME = Path(rolloutlog.__file__).parent
MODULE = HOME / "kafka" / "client" / "inner_parts.py"
PROJECT = Path(__file__).parents[2] / "pyproject.toml"
DOCUMENTED = re.compile(r"aiokafka(\.(admin(\.config_resource)?|errors|structs|coordinator\.assignors\.\w+))?")
PUBLIC = {"_replace", "_asdict", "_fields", "_make", "_exit"}
"""Of named tuples and of `os`, in spite of their names."""


def modules() -> Iterator[tuple[Path, ast.Module]]:
    for path in sorted(HOME.rglob("*.py")):
        yield path.resolve(), ast.parse(path.read_text())


def test_another_series_of_the_client_is_refused_before_its_parts_are_imported() -> None:
    check_version(f"{SERIES}.7")
    with pytest.raises(ClientUnsupported, match=f"aiokafka 0.15.0 is installed, .* needs {SERIES}"):
        check_version("0.15.0")
    script = """
import importlib.metadata, sys
importlib.metadata.version = lambda name: "0.15.0"
try:
    import rolloutlog.kafka.client.inner_parts
except Exception as error:
    print(type(error).__name__, "aiokafka.record" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    assert done.stdout.split() == ["ClientUnsupported", "False"]


@pytest.mark.skipif(not PROJECT.is_file(), reason="an installed wheel has no pyproject.toml")
def test_the_series_is_the_one_that_is_installed_with_us() -> None:
    (wanted,) = (line for line in requires("rolloutlog") or () if line.startswith("aiokafka"))
    upper = f"0.{int(SERIES.split('.')[1]) + 1}"
    assert set(wanted.removeprefix("aiokafka[zstd]").split(",")) == {f">={SERIES}", f"<{upper}"}


def test_nothing_else_imports_what_aiokafka_does_not_document() -> None:
    found = {
        f"{path.name}:{node.lineno} {node.module}"
        for path, tree in modules()
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "aiokafka"
        if path != MODULE and not DOCUMENTED.fullmatch(node.module or "")
    }
    assert found == set()


def test_nothing_else_in_the_kafka_room_looks_into_private_parts() -> None:
    """Neither by a dot nor by `getattr`; what a module defines itself is its own."""
    found = {
        f"{path.name}: {name}"
        for path, tree in modules()
        if path != MODULE and "kafka" in path.parts
        for name in looked_into(tree) - defined(tree) - PUBLIC
    }
    assert found == set()


def looked_into(tree: ast.Module) -> set[str]:
    """Private names after a dot, but for those of `self`, and in strings that are such a name."""
    dotted = {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and not (isinstance(node.value, ast.Name) and node.value.id == "self")
    }
    texts = {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    return {name for name in dotted | texts if re.fullmatch(r"_[a-z]\w*", name)}


def defined(tree: ast.Module) -> set[str]:
    """A module's functions, methods, and attributes of `self`."""
    functions = {node.name for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))}
    return functions | {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self"
    }


def test_the_warning_of_a_rebalance_is_known_by_its_text() -> None:
    """Else every rebalance would be warned of."""
    assert REBALANCING in inspect.getsource(importlib.import_module("aiokafka.consumer.group_coordinator"))


def test_an_assignment_is_read() -> None:
    """Else `status` names no owners."""
    kind: Any = ConsumerProtocolMemberAssignment
    written = kind(0, [("run.rollouts", [3, 1]), ("run.seeds", [1, 3])], b"")
    assert assigned_partitions(written.encode()) == [1, 3]
    assert assigned_partitions(b"") == []


def test_an_address_that_nobody_has_is_told_with_its_cause() -> None:
    """Else why a broker can't be reached isn't said in words."""
    with pytest.raises((OSError, KafkaConnectionError)):
        asyncio.run(try_address("127.0.0.1", 9, {}, 5.0))


@pytest.mark.broker
async def test_a_broker_answers_by_hand(connection: Connection) -> None:
    client = connection.client()
    assert addresses_of(client) == [_address(connection)]
    await client.bootstrap()
    assert addresses_of(client) == [_address(connection), _address(connection)]
    await try_address(*_address(connection), {"client_id": "test"}, 5.0)
    await client.close()


def _address(connection: Connection) -> tuple[str, int]:
    host, _, port = connection.bootstrap_servers.partition(":")
    return host, int(port)


@pytest.mark.broker
@pytest.mark.parametrize("kind", ["consumer", "producer", "admin", "client"])
def test_every_kind_of_client_drops_its_connections_when_it_closes(connection: Connection, kind: str) -> None:
    """Else closing takes half a second over TLS."""

    async def body() -> list[str]:
        client: Any = getattr(connection, kind)()
        inner: Any = protocol_client_of(client)
        assert type(inner).__name__ == "AIOKafkaClient"
        await (client.bootstrap() if kind == "client" else client.start())
        assert await inner.ready(next(iter(inner.cluster.brokers())).nodeId)
        transports = [each._writer.transport for each in inner._conns.values()]
        assert transports
        dropped: list[str] = []
        for transport in transports:
            _watch(transport, dropped)
        await (client.stop() if hasattr(client, "stop") else client.close())
        assert len(dropped) == len(transports)
        return dropped

    assert set(asyncio.run(body())) == {"dropped"}


def _watch(transport: Any, dropped: list[str]) -> None:
    abort = transport.abort

    def watched() -> None:
        dropped.append("dropped")
        abort()

    transport.abort = watched


@pytest.mark.broker
async def test_the_futures_that_a_failed_producer_leaves_are_found(settings: Settings, connection: Connection) -> None:
    """Else asyncio prints that their exceptions were never retrieved: one of the transaction, one of each batch."""
    await create_topics(connection, settings)
    producer = connection.producer(connection.names.transactional_id("test"))
    assert futures_left(producer) == []
    await producer.start()
    await producer.begin_transaction()
    assert len(futures_left(producer)) == 1
    batch = producer.create_batch()
    batch.append(key=b"k", value=b"v", timestamp=None)
    name = connection.names.topic(Topic.ROLLOUTS)
    await producer.partitions_for(name)
    answer = await producer.send_batch(batch, name, partition=0)
    assert len(futures_left(producer)) == 2
    await answer
    await producer.abort_transaction()
    await producer.stop()


@pytest.mark.broker
async def test_offsets_are_listed(settings: Settings, connection: Connection) -> None:
    """Else no reader knows where a partition ends.

    The two that aren't tried here: `test_core.py` mends topics by `send_by_admin`, `test_lenient.py` reads by
    `fetch_plainly`.
    """
    await create_topics(connection, settings)
    await ends(connection, [Topic.ROLLOUTS])  # which waits for leaders
    client = connection.client()
    await client.bootstrap()
    node = int(next(iter(client.cluster.brokers())).nodeId)
    name = connection.names.topic(Topic.ROLLOUTS)
    assert await list_offsets(client, node, name, [(0, -1), (2, -2)], 0) == {0: 0, 2: 0}
    await client.close()
