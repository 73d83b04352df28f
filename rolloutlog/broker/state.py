"""What is known of a broker from its state file: who it is, where it listens, which processes it is.

Guarantees: values only, refused when a key is unknown; written by replacing the file whole. Leaves out: whether the
processes still live (`process`) and where the file lies (`folder`).
"""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

from rolloutlog.broker.ports import HOST


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

    def node(self, id: int) -> NodeState:
        """The node of that id (1 to n)."""
        return self.nodes[id - 1]

    def with_node(self, node: NodeState) -> BrokerState:
        """The same broker with that node replaced."""
        nodes = tuple(node if old.id == node.id else old for old in self.nodes)
        return self.model_copy(update={"nodes": nodes})
