"""The folder of one broker on disk.

Guarantees: everything of a broker lies in `<data dir>/broker`, so that a reset removes nothing else; the state file
is replaced whole. Leaves out: what is in Kafka's own files, except whose cluster they belong to.

    broker/lock, broker/state.json
    broker/node-1/{server.properties, log4j2.xml, server.log, server.out, data/}
"""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from rolloutlog.broker import process
from rolloutlog.broker.state import BrokerState, NodeState
from rolloutlog.contract.errors import BrokerFailed


def default_data_dir() -> Path:
    """`ROLLOUTLOG_DATA_DIR`, else `.rolloutlog` in the current folder."""
    return Path(os.environ.get("ROLLOUTLOG_DATA_DIR") or ".rolloutlog")


@dataclass(frozen=True, slots=True)
class NodeFolder:
    """The files of one node. Its processes work in it, so paths in their settings are relative and may hold any
    character."""

    path: Path

    @property
    def properties(self) -> Path:
        return self.path / "server.properties"

    @property
    def log_settings(self) -> Path:
        return self.path / "log4j2.xml"

    @property
    def log(self) -> Path:
        """What Kafka logged since this start; older ones are server.log.1 and so on."""
        return self.path / "server.log"

    @property
    def output(self) -> Path:
        """What the JVM itself printed since this start."""
        return self.path / "server.out"

    @property
    def data(self) -> Path:
        return self.path / "data"

    @property
    def marker(self) -> str:
        return process.node_marker(self.path)

    def write_settings(self, properties: str, log_settings: str) -> None:
        """Make the folder, with what Kafka reads from it at a start."""
        try:
            self.path.mkdir(exist_ok=True)
            self.properties.write_text(properties)
            self.log_settings.write_text(log_settings)
        except OSError as error:
            raise _unwritable(self.path, error) from error

    def is_formatted(self) -> bool:
        return (self.data / "meta.properties").exists()

    def identity(self) -> dict[str, str]:
        """What Kafka wrote into its data when it was formatted: `cluster.id`, `node.id`."""
        lines = (self.data / "meta.properties").read_text().splitlines()
        return dict(line.split("=", 1) for line in lines if "=" in line and not line.startswith("#"))


@dataclass(frozen=True, slots=True)
class BrokerFolder:
    """The folder of one broker, with its state file."""

    path: Path

    @classmethod
    def of(cls, data_dir: Path | str | None) -> BrokerFolder:
        """The broker's folder below a data dir (default: `default_data_dir`)."""
        return cls((Path(data_dir) if data_dir is not None else default_data_dir()).absolute() / "broker")

    @property
    def lock(self) -> Path:
        return self.path / "lock"

    @property
    def state_file(self) -> Path:
        return self.path / "state.json"

    def node(self, id: int) -> NodeFolder:
        return NodeFolder(self.path / f"node-{id}")

    def make(self) -> None:
        """Make the folder. Raises BrokerFailed where none can be made."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise _unwritable(self.path, error) from error

    def read(self) -> BrokerState | None:
        """The state file; None when no broker was ever started here."""
        try:
            return BrokerState.model_validate_json(self.state_file.read_bytes())
        except FileNotFoundError:
            return None
        except (OSError, ValidationError) as error:
            raise BrokerFailed(
                f"the state file {self.state_file} can't be read ({type(error).__name__})",
                "`rolloutlog broker reset` starts over with an empty broker; its data are lost",
            ) from error

    def write(self, state: BrokerState) -> None:
        """Replace the state file."""
        try:
            with tempfile.NamedTemporaryFile("w", dir=self.path, delete=False, suffix=".tmp") as file:
                file.write(state.model_dump_json(indent=2))
            os.replace(file.name, self.state_file)
        except OSError as error:
            raise _unwritable(self.path, error) from error

    def is_alive(self, node: NodeState) -> bool:
        """Whether the process of that node, as started in this folder, still runs."""
        return process.is_alive(node.process, self.node(node.id).marker)


def _unwritable(path: Path, error: OSError) -> BrokerFailed:
    return BrokerFailed(f"{path} can't be written: {error.strerror}", "make room there, or choose another --data-dir")
