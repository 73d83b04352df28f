"""A broker for the life of a `with` block: in tests, in the demo, in chaos.

Guarantees: it ends with the block, or with this process even if that is killed (SIGKILL). Leaves out: nothing is
stopped that was found running detached in the same data folder; that broker is used and left.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from rolloutlog.broker.cluster import STOP_PATIENCE, Cluster
from rolloutlog.broker.install.start_progress import OnProgress, silent
from rolloutlog.broker.lifetime import Owned
from rolloutlog.broker.process import node_process as process
from rolloutlog.broker.process.data_folder import BrokerFolder, belongs_to_another
from rolloutlog.broker.process.state import BrokerState
from rolloutlog.contract.errors import BrokerFailed


class EmbeddedKafka:
    """Apache Kafka of one node or three, as a context manager (`with` or `async with`).

    `data_dir`: where its data stay; None makes a temporary folder that goes with it. `nodes`: 1 or 3. `port`: the
    first client port; None chooses. `fast_start` saves half of the CPU of a start and costs throughput under load.
    `properties` are Kafka's own server properties, which win over ours; listeners among them are added to ours.
    """

    def __init__(
        self,
        data_dir: Path | str | None = None,
        nodes: int | None = None,
        port: int | None = None,
        *,
        fast_start: bool = True,
        on_progress: OnProgress = silent,
        properties: Mapping[str, str] | None = None,
    ) -> None:
        self._data_dir = data_dir
        self._nodes = nodes
        self._port = port
        self._fast_start = fast_start
        self._on_progress = on_progress
        self._properties = dict(properties or {})
        self._temporary: Path | None = None
        self._lifetime = Owned()
        self._cluster: Cluster | None = None
        self._attached = False

    @property
    def state(self) -> BrokerState:
        """Nodes, ports and processes as they are now."""
        return self._running().state()

    @property
    def bootstrap_servers(self) -> str:
        """What a Kafka client wants: `host:port`, separated by commas."""
        return self.state.bootstrap_servers

    @property
    def data_dir(self) -> Path:
        """The folder that its data lie in."""
        return self._running().folder.path.parent

    def open(self) -> Self:
        """Start, and wait until it is ready (3.5 s; 12 s the first time on a machine)."""
        if self._data_dir is None:
            self._temporary = Path(tempfile.mkdtemp(prefix="rolloutlog-broker-"))
        self._lifetime = Owned(self._temporary)
        folder, owner = BrokerFolder.of(self._temporary or self._data_dir), process.identify(os.getpid())
        self._cluster = Cluster(folder, self._lifetime, owner, self._fast_start, self._on_progress, self._properties)
        try:
            state = self._cluster.start(self._nodes, self._port)
            self._attached = state.owner is None
            if not self._attached and not all(self._lifetime.holds(node.process) for node in state.nodes):
                raise belongs_to_another(folder, state)
        except BaseException:
            self._end()
            raise
        return self

    def close(self) -> None:
        """Stop it; a temporary folder is removed. Twice is harmless."""
        try:
            # nobody will read temporary data again: there is nothing to shut down in order
            if self._cluster is not None and not self._attached and self._temporary is None:
                self._cluster.stop(self._cluster.state().ids)
        finally:
            self._end()

    def start(self, node: int) -> None:
        """Start a node (1 to n) that was stopped or killed, and wait until it serves again."""
        self._owned().start_node(node)

    def stop(self, node: int, patience: float = STOP_PATIENCE) -> None:
        """Stop a node in order (SIGTERM), after `patience` seconds by SIGKILL."""
        self._owned().stop([node], patience)

    def kill(self, node: int) -> None:
        """SIGKILL a node."""
        self._owned().stop([node], patience=0)

    def check(self) -> None:
        """Raise BrokerFailed, saying why, when a node died by itself."""
        self._running().check()

    def _running(self) -> Cluster:
        if self._cluster is None:
            raise BrokerFailed("this EmbeddedKafka isn't started", "use it in a `with` block")
        return self._cluster

    def _owned(self) -> Cluster:
        if self._attached:
            raise BrokerFailed(
                "this broker was found running detached; its nodes aren't ours to stop", "give an own data_dir"
            )
        return self._running()

    def _end(self) -> None:
        self._cluster = None
        self._lifetime.close()
        if self._temporary:
            shutil.rmtree(self._temporary, ignore_errors=True)

    def _explain(self, error: BaseException | None) -> None:
        """To an error that leaves the block, add that the broker died, if it did: clients only see it gone."""
        if error is not None and self._cluster is not None:
            try:
                self._cluster.check()
            except BrokerFailed as reason:
                error.add_note(reason.message)

    def __enter__(self) -> Self:
        return self.open()

    def __exit__(self, _: type[BaseException] | None, error: BaseException | None, __: TracebackType | None) -> None:
        self._explain(error)
        self.close()

    async def __aenter__(self) -> Self:
        return await asyncio.to_thread(self.open)

    async def __aexit__(
        self, _: type[BaseException] | None, error: BaseException | None, __: TracebackType | None
    ) -> None:
        self._explain(error)
        await asyncio.to_thread(self.close)
