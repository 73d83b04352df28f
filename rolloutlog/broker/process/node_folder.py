"""The folder of one node on disk: what we write for Kafka, what it writes, and whose data it holds.

Guarantees: the node's processes work *in* this folder, so that the paths in their settings are relative and the folder
may have any name. Leaves out: Kafka's own files below `data`, except whose they are.

    node-1/{server.properties, log4j2.xml, server.log, server.out, data/, tmp/}
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from rolloutlog.broker.process import node_process as process
from rolloutlog.contract.errors import BrokerFailed


@dataclass(frozen=True, slots=True)
class FolderIdentity:
    """Whose data a folder holds, as Kafka wrote it when the folder was formatted."""

    cluster_id: str
    node_id: str


@dataclass(frozen=True, slots=True)
class NodeFolder:
    """The files of one node."""

    path: Path

    @property
    def log(self) -> Path:
        """What Kafka logged since its start; older ones are server.log.1 and so on."""
        return self.path / "server.log"

    @property
    def output(self) -> Path:
        """What the JVM itself printed since its start."""
        return self.path / "server.out"

    @property
    def data(self) -> Path:
        return self.path / "data"

    @property
    def scratch(self) -> Path:
        """Native libraries that the JVM unpacks, and leaves behind when it is killed."""
        return self.path / "tmp"

    @property
    def marker(self) -> str:
        """What tells this node's process from every other one."""
        return process.marker_of(self.path)

    def prepare(self, properties: str, log_settings: str) -> None:
        """Make the folder with what a start of Kafka needs. Raises BrokerFailed where it can't be written."""
        try:
            shutil.rmtree(self.scratch, ignore_errors=True)
            self.scratch.mkdir(parents=True)
            (self.path / "server.properties").write_text(properties)
            (self.path / "log4j2.xml").write_text(log_settings)
        except OSError as error:
            raise unwritable(self.path, error) from error

    def identity(self) -> FolderIdentity | None:
        """Whose data are here; None when there are none (never formatted, or not to the end)."""
        try:
            lines = (self.data / "meta.properties").read_text().splitlines()
        except FileNotFoundError:
            return None
        values = dict(line.split("=", 1) for line in lines if "=" in line)
        return FolderIdentity(values.get("cluster.id", "?"), values.get("node.id", "?"))


def unwritable(path: Path, error: OSError) -> BrokerFailed:
    """The one sentence for a folder or file that can't be written."""
    return BrokerFailed(f"{path} can't be written: {error.strerror}", "make room there, or choose another --data-dir")
