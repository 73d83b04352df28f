"""What a broker is before any process runs: its cluster id, nodes and ports, and whether a folder fits them.

Guarantees: what a folder was given once it keeps, and data that belong to another cluster are refused. Leaves out:
processes.
"""

from __future__ import annotations

import base64
import time
import uuid
from collections.abc import Sequence

from rolloutlog.broker.process.data_folder import BrokerFolder
from rolloutlog.broker.process.ports import free_ports, is_free
from rolloutlog.broker.process.state import BrokerState, NodeState
from rolloutlog.contract.errors import BrokerFailed, SettingsError

SIZES = (1, 3)
LAST_PORT = 65_535
PORT_PATIENCE = 5.0


def choose_broker(folder: BrokerFolder, found: BrokerState | None, nodes: int | None, port: int | None) -> BrokerState:
    """The broker that is to run in `folder`: the one `found` there, else the one whose data are there, else a new one.

    Raises SettingsError when it has another number of nodes, BrokerFailed when some of the data aren't its own.
    """
    if nodes is not None and nodes not in SIZES:
        raise SettingsError(f"a broker has 1 node or 3, not {nodes}", "three go on when one of them is lost")
    if port is not None and not 0 < port <= LAST_PORT + 1 - SIZES[-1]:
        raise SettingsError(f"{port} can't be the first port of a broker", "choose one between 1024 and 32767")
    state = _moved(folder, found, port) if found else _new(folder, nodes, port)
    if nodes is not None and nodes != len(state.nodes):
        raise SettingsError(
            f"the broker in {folder.path} has {len(state.nodes)} node(s), not {nodes}",
            "choose another --data-dir, or lose its data with `rolloutlog broker reset`",
        )
    _check_identity(folder, state)
    return state


def wait_for_ports(state: BrokerState, ids: Sequence[int]) -> None:
    """Wait until killed nodes have let go of their ports. Raises BrokerFailed when another program has one."""
    deadline = time.monotonic() + PORT_PATIENCE
    for port in (port for id in ids for port in (state.node(id).port, state.node(id).controller_port)):
        while not is_free(port):
            if time.monotonic() > deadline:
                raise BrokerFailed(
                    f"port {port} of this broker is taken by another program",
                    "stop that program, or move the broker with `rolloutlog broker up --port`",
                )
            time.sleep(0.05)


def _new(folder: BrokerFolder, nodes: int | None, port: int | None) -> BrokerState:
    """A broker for what is in `folder`: data whose state file was lost, or nothing."""
    data = folder.identities()
    size = nodes or (SIZES[0] if not data or max(data) in SIZES[:1] else SIZES[-1])
    clients = _client_ports(port, size) if port else free_ports(size)
    controllers = free_ports(size, taken=clients)
    return BrokerState(
        cluster_id=next(iter(data.values())).cluster_id if data else _random_id(),
        nodes=tuple(
            NodeState(id=id, port=client, controller_port=controller)
            for id, client, controller in zip(range(1, size + 1), clients, controllers, strict=True)
        ),
    )


def _moved(folder: BrokerFolder, state: BrokerState, port: int | None) -> BrokerState:
    """The same broker on other ports for its clients, if others are wanted."""
    if port is None or port == state.nodes[0].port:
        return state
    if any(folder.is_alive(node) for node in state.nodes):
        raise SettingsError(
            f"the broker runs on port {state.nodes[0].port}, not {port}", "stop it first: `rolloutlog broker down`"
        )
    moves = zip(state.nodes, _client_ports(port, len(state.nodes)), strict=True)
    return state.model_copy(update={"nodes": tuple(node.model_copy(update={"port": new}) for node, new in moves)})


def _client_ports(first: int, count: int) -> list[int]:
    return list(range(first, first + count))


def _random_id() -> str:
    """A cluster id as Kafka makes them: a random UUID, base64 without padding, that no tool takes for an option."""
    while (text := base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")).startswith("-"):
        continue
    return text


def _check_identity(folder: BrokerFolder, state: BrokerState) -> None:
    """Refuse data folders that were made for another cluster or another node."""
    for id, found in folder.identities().items():
        if (found.cluster_id, found.node_id) != (state.cluster_id, str(id)):
            raise BrokerFailed(
                f"{folder.node(id).data} holds the data of node {found.node_id} of cluster {found.cluster_id}, "
                f"but belongs to node {id} of cluster {state.cluster_id}",
                "put back the folder that was there, or choose another --data-dir",
            )
