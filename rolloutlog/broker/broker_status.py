"""What can be said of a broker now, running or not.

Guarantees: facts only; a node that died by itself comes with the reason. Leaves out: whether it answers clients.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rolloutlog.broker.process import diagnosis
from rolloutlog.broker.process import node_process as process
from rolloutlog.broker.process.data_folder import BrokerFolder
from rolloutlog.broker.process.state import NodeState


@dataclass(frozen=True, slots=True)
class NodeStatus:
    """One node. `memory` is resident, in bytes; `why` says why it died, unless it was stopped on purpose."""

    id: int
    port: int
    running: bool
    pid: int | None
    memory: int | None
    why: str | None


@dataclass(frozen=True, slots=True)
class BrokerStatus:
    """One broker. `owner` is the pid of the process that it ends with; None: it runs on its own."""

    running: bool
    bootstrap_servers: str
    cluster_id: str
    data_dir: Path
    owner: int | None
    nodes: tuple[NodeStatus, ...]


def status(data_dir: Path | str | None = None) -> BrokerStatus | None:
    """The broker of `data_dir`; None when none was ever started there."""
    folder = BrokerFolder.of(data_dir)
    if (state := folder.read()) is None:
        return None
    nodes = tuple(_node(folder, node) for node in state.nodes)
    running = any(node.running for node in nodes)
    owner = state.owner.pid if state.owner and running else None
    return BrokerStatus(
        running=running,
        bootstrap_servers=state.bootstrap_servers,
        cluster_id=state.cluster_id,
        data_dir=folder.path.parent,
        owner=owner,
        nodes=nodes,
    )


def _node(folder: BrokerFolder, node: NodeState) -> NodeStatus:
    if node.process and folder.is_alive(node):
        memory = process.memory(node.process)
        return NodeStatus(node.id, node.port, running=True, pid=node.process.pid, memory=memory, why=None)
    why = diagnosis.why(folder.node(node.id)) if node.process else None
    return NodeStatus(node.id, node.port, running=False, pid=None, memory=None, why=why)
