"""The detached broker of a data folder: started once, found again by every later command until it is stopped.

Guarantees: `up` returns a broker that is ready, starting only what doesn't run; `find` believes no state file whose
processes are gone. Leaves out: brokers owned by another process, which `up`, `down` and `reset` refuse to touch.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from rolloutlog.broker.cluster import Cluster
from rolloutlog.broker.install.flock import locked
from rolloutlog.broker.install.start_progress import OnProgress, silent
from rolloutlog.broker.lifetime import Detached
from rolloutlog.broker.process.data_folder import BrokerFolder, belongs_to_another
from rolloutlog.broker.process.state import BrokerState
from rolloutlog.contract.errors import BrokerFailed


def up(
    data_dir: Path | str | None = None,
    nodes: int | None = None,
    port: int | None = None,
    *,
    fast_start: bool = False,
    on_progress: OnProgress = silent,
) -> BrokerState:
    """Start the broker of `data_dir` (default: `ROLLOUTLOG_DATA_DIR` or `.rolloutlog`) and leave it running.

    `nodes` is 1 or 3, `port` the first client port; both are kept from the first start on.
    """
    folder = BrokerFolder.of(data_dir)
    return _ours(folder, Cluster(folder, Detached(), None, fast_start, on_progress).start(nodes, port))


def find(data_dir: Path | str | None = None) -> BrokerState | None:
    """The broker of `data_dir` if any of its nodes runs."""
    folder = BrokerFolder.of(data_dir)
    state = folder.read()
    return state if state and any(folder.is_alive(node) for node in state.nodes) else None


def down(data_dir: Path | str | None = None) -> bool:
    """Stop the broker of `data_dir` and keep its data; False when none was running."""
    folder = BrokerFolder.of(data_dir)
    if (state := find(data_dir)) is None:
        return False
    _ours(folder, state)
    Cluster(folder, Detached()).stop(state.ids)
    return True


def reset(data_dir: Path | str | None = None) -> bool:
    """Remove the broker of `data_dir` with all its data; False when there was none, BrokerFailed while it runs."""
    folder = BrokerFolder.of(data_dir)
    if not folder.path.exists():
        return False
    with locked(folder.lock):
        if find(data_dir) is not None:
            raise BrokerFailed(f"the broker in {folder.path} is running", "stop it with `rolloutlog broker down` first")
        shutil.rmtree(folder.path)
    return True


def logs(data_dir: Path | str | None = None) -> list[Path]:
    """The log files of the nodes since their last start, those that exist, by node."""
    folder = BrokerFolder.of(data_dir)
    state = folder.read()
    nodes = [folder.node(node.id) for node in state.nodes] if state else []
    return [path for node in nodes for path in (node.output, node.log) if path.exists()]


def _ours(folder: BrokerFolder, state: BrokerState) -> BrokerState:
    if state.owner is not None:
        raise belongs_to_another(folder, state)
    return state
