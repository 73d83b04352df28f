"""What is known of a broker from its state file: who it is, where it listens, which processes it is.

Guarantees: values only, refused when a key is unknown; written by replacing the file whole. Leaves out: whether the
processes still live (`node_process`) and where the file lies (`data_folder`).
"""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

from rolloutlog.broker.process.ports import HOST
from rolloutlog.contract.errors import SettingsError


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class ProcessState(_Model):
    """A process as it was started: pid, and start time in seconds since the epoch."""

    pid: int
    started: float


class NodeState(_Model):
    """One node: its id (1 to n), its ports (kept for the life of the folder), its process when it was started."""

    id: int
    port: int
    controller_port: int
    process: ProcessState | None = None


class BrokerState(_Model):
    """One broker of one node or three. `owner` is the process that it dies with; None: it runs on its own."""

    cluster_id: str
    nodes: tuple[NodeState, ...]
    owner: ProcessState | None = None

    @property
    def bootstrap_servers(self) -> str:
        """What a Kafka client wants: `host:port`, separated by commas."""
        return ",".join(f"{HOST}:{node.port}" for node in self.nodes)

    @property
    def ids(self) -> range:
        """The numbers of the nodes, 1 to n."""
        return range(1, len(self.nodes) + 1)

    def node(self, id: int) -> NodeState:
        """The node of that id (1 to n)."""
        if not 1 <= id <= len(self.nodes):
            raise SettingsError(f"there is no node {id}", f"this broker has nodes 1 to {len(self.nodes)}")
        return self.nodes[id - 1]

    def with_process(self, id: int, process: ProcessState | None) -> BrokerState:
        """The same broker with another process for that node (None: stopped on purpose)."""
        changed = self.node(id).model_copy(update={"process": process})
        nodes = tuple(changed if node.id == id else node for node in self.nodes)
        return self.model_copy(update={"nodes": nodes})
