"""What a broker is before any process runs: its cluster id, nodes and ports, and whether a folder fits them.

Guarantees: what a folder was given once it keeps, and data that belong to another cluster are refused. Leaves out:
processes.
"""

from __future__ import annotations

import base64
import time
import uuid
from collections.abc import Sequence

from rolloutlog.broker.folder import BrokerFolder
from rolloutlog.broker.ports import free_ports, is_free
from rolloutlog.broker.state import BrokerState, NodeState
from rolloutlog.contract.errors import BrokerFailed, SettingsError

SIZES = (1, 3)
PORT_PATIENCE = 5.0


def settle(folder: BrokerFolder, found: BrokerState | None, nodes: int | None, port: int | None) -> BrokerState:
    """The broker that is to run in `folder`: the one `found` there, or a new one.

    Raises SettingsError when it has another number of nodes, BrokerFailed when the data aren't its own.
    """
    if nodes is not None and nodes not in SIZES:
        raise SettingsError(
            f"a broker has 1 node or 3, not {nodes}", "three make a quorum that survives the loss of one"
        )
    if found is None:
        return _new(nodes or 1, port)
    if nodes is not None and nodes != len(found.nodes):
        raise SettingsError(
            f"the broker in {folder.path} has {len(found.nodes)} node(s), not {nodes}",
            "choose another --data-dir, or `rolloutlog broker reset` to lose its data",
        )
    check_identity(folder, found)
    return found if port is None else _moved(folder, found, port)


def check_identity(folder: BrokerFolder, state: BrokerState) -> None:
    """Refuse data folders that were made for another cluster or another node."""
    for node in state.nodes:
        if not folder.node(node.id).is_formatted():
            continue
        identity = folder.node(node.id).identity()
        if identity.get("cluster.id") != state.cluster_id or identity.get("node.id") != str(node.id):
            raise BrokerFailed(
                f"{folder.node(node.id).data} holds the data of node {identity.get('node.id')} of cluster "
                f"{identity.get('cluster.id')}, but this is node {node.id} of cluster {state.cluster_id}",
                "put back the folder that was there, or choose another --data-dir",
            )


def wait_for_ports(state: BrokerState, ids: Sequence[int]) -> None:
    """Wait until a killed node has let go of its ports. Raises BrokerFailed when another program has one."""
    deadline = time.monotonic() + PORT_PATIENCE
    for port in (port for id in ids for port in (state.node(id).port, state.node(id).controller_port)):
        while not is_free(port):
            if time.monotonic() > deadline:
                raise BrokerFailed(
                    f"port {port} of this broker is taken by another program",
                    "stop that program, or move the broker with `rolloutlog broker up --port`",
                )
            time.sleep(0.05)


def _new(nodes: int, port: int | None) -> BrokerState:
    cluster_id = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
    clients = list(range(port, port + nodes)) if port else free_ports(nodes)
    controllers = free_ports(nodes, taken=clients)
    ids = range(1, nodes + 1)
    return BrokerState(
        cluster_id=cluster_id,
        nodes=tuple(
            NodeState(id=id, port=client, controller_port=controller)
            for id, client, controller in zip(ids, clients, controllers, strict=True)
        ),
    )


def _moved(folder: BrokerFolder, state: BrokerState, port: int) -> BrokerState:
    """The same broker on other ports for its clients."""
    if port == state.nodes[0].port:
        return state
    if any(folder.is_alive(node) for node in state.nodes):
        raise SettingsError(
            f"the broker runs on port {state.nodes[0].port}, not {port}", "stop it with `rolloutlog broker down` first"
        )
    moved = (node.model_copy(update={"port": port + node.id - 1}) for node in state.nodes)
    return state.model_copy(update={"nodes": tuple(moved)})
