"""The folder of one broker on disk.

Guarantees: everything of a broker lies in `<data dir>/broker`, so that a reset removes nothing else; the state file is
replaced whole. Leaves out: the files of a node (`node_folder`).

    broker/lock, broker/state.json, broker/node-1/, ...
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from rolloutlog.broker.process import node_process as process
from rolloutlog.broker.process.node_folder import FolderIdentity, NodeFolder, unwritable
from rolloutlog.broker.process.state import BrokerState, NodeState
from rolloutlog.contract.errors import BrokerFailed


def default_data_dir() -> Path:
    """`ROLLOUTLOG_DATA_DIR`, else `.rolloutlog` in the current folder."""
    return Path(os.environ.get("ROLLOUTLOG_DATA_DIR") or ".rolloutlog")


@dataclass(frozen=True, slots=True)
class BrokerFolder:
    """The folder of one broker, with its state file."""

    path: Path

    @classmethod
    def of(cls, data_dir: Path | str | None) -> BrokerFolder:
        """The broker's folder below a data dir (default: `default_data_dir`), by the one name that it has."""
        return cls((Path(data_dir) if data_dir is not None else default_data_dir()).resolve() / "broker")

    @property
    def lock(self) -> Path:
        return self.path / "lock"

    @property
    def state_file(self) -> Path:
        return self.path / "state.json"

    def node(self, id: int) -> NodeFolder:
        return NodeFolder(self.path / f"node-{id}")

    def identities(self) -> dict[int, FolderIdentity]:
        """Whose data are here, by the number of the node's folder; blank folders are left out."""
        numbers = sorted(int(path.name.removeprefix("node-")) for path in self.path.glob("node-[0-9]"))
        return {id: identity for id in numbers if (identity := self.node(id).identity())}

    def make(self) -> None:
        """Make the folder. Raises BrokerFailed where none can be made."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise unwritable(self.path, error) from error

    def read(self) -> BrokerState | None:
        """The state file; None when no broker was ever started here."""
        try:
            return BrokerState.model_validate_json(self.state_file.read_bytes())
        except FileNotFoundError:
            return None
        except (OSError, ValidationError) as error:
            raise BrokerFailed(
                f"the state file {self.state_file} can't be read ({type(error).__name__})",
                "remove that file: the next start finds the data again, and chooses other ports",
            ) from error

    def write(self, state: BrokerState) -> None:
        """Replace the state file; only for the holder of the lock."""
        new = self.state_file.with_suffix(".new")
        try:
            new.write_text(state.model_dump_json(indent=2))
            new.replace(self.state_file)
        except OSError as error:
            raise unwritable(self.state_file, error) from error

    def is_alive(self, node: NodeState) -> bool:
        """Whether the process of that node, as started in this folder, still runs."""
        return process.is_alive(node.process, self.node(node.id).marker)

    def wait_gone(self, node: NodeState, patience: float) -> bool:
        """Wait at most `patience` seconds for the end of that node's process; whether it came."""
        return node.process is None or process.wait_gone(node.process, self.node(node.id).marker, patience)

    def stop(self, node: NodeState, patience: float) -> None:
        """SIGTERM to that node's process, SIGKILL after `patience` seconds; at 0 SIGKILL alone."""
        if node.process is not None:
            process.stop(node.process, self.node(node.id).marker, patience)


def belongs_to_another(folder: BrokerFolder, state: BrokerState) -> BrokerFailed:
    """The one sentence for a broker that another process owns."""
    return BrokerFailed(
        f"the broker in {folder.path} belongs to process {state.owner and state.owner.pid} and ends with it",
        "wait for that process or stop it, or choose another --data-dir",
    )
