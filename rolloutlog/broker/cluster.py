"""Starting and stopping the nodes of one broker.

Guarantees: one start at a time on a folder (the second finds the first one's broker); ports and cluster id are kept
over restarts; a start that fails leaves no process. Leaves out: what a new broker is (`plan`), how long processes
live (`lifetime`), and the two modes that callers see (`daemon`, `embedded`).
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import repeat

from rolloutlog.broker import diagnosis, plan, process
from rolloutlog.broker.flock import locked
from rolloutlog.broker.folder import BrokerFolder
from rolloutlog.broker.jars import fetch
from rolloutlog.broker.java import java
from rolloutlog.broker.kafka import Kafka
from rolloutlog.broker.lifetime import Lifetime
from rolloutlog.broker.progress import OnProgress, Progress, silent
from rolloutlog.broker.properties import LOG4J2, server_properties
from rolloutlog.broker.readiness import wait_ready
from rolloutlog.broker.state import BrokerState, NodeState, ProcessState
from rolloutlog.contract.errors import BrokerFailed

START_PATIENCE = 60.0
STOP_PATIENCE = 15.0
ORPHAN_PATIENCE = 5.0


@dataclass(frozen=True, slots=True)
class Cluster:
    """The nodes of the broker in `folder`, started with `lifetime` in the name of `owner` (None: in nobody's)."""

    folder: BrokerFolder
    lifetime: Lifetime
    owner: ProcessState | None = None
    fast_start: bool = False
    on_progress: OnProgress = silent

    def start(self, nodes: int | None = None, port: int | None = None) -> BrokerState:
        """Start what doesn't run of the broker, wait until it is ready, and return it.

        `nodes` and `port` are for a new broker; None takes what is there. A broker that runs in another name is
        returned as it is: look at its `owner`.
        """
        self.folder.make()
        with locked(self.folder.lock):
            found = self.folder.read()
            state = plan.settle(self.folder, found, nodes, port)
            if found is not None and self._runs_in_another_name(found):
                return found
            return self._launch(state, [node.id for node in state.nodes if not self.folder.is_alive(node)])

    def start_node(self, id: int) -> None:
        """Start one node and wait until it and all that run are ready together."""
        with locked(self.folder.lock):
            state = self.state()
            if not self.folder.is_alive(state.node(id)):
                self._launch(state, [id])

    def stop(self, ids: Sequence[int], patience: float = STOP_PATIENCE) -> None:
        """SIGTERM to these nodes at once, SIGKILL to those that are left after `patience` seconds (0: to all)."""
        with locked(self.folder.lock):
            nodes = [self.state().node(id) for id in ids]
            with ThreadPoolExecutor(len(nodes)) as pool:
                list(pool.map(self._end, nodes, repeat(patience)))
            self._forget(ids)

    def check(self) -> None:
        """Raise BrokerFailed, saying why, when a node that was started doesn't run any more."""
        for node in self.state().nodes:
            if node.process is not None and not self.folder.is_alive(node):
                raise self._died(node.id)

    def state(self) -> BrokerState:
        """The state file. Raises BrokerFailed when there is none."""
        state = self.folder.read()
        if state is None:
            raise BrokerFailed(
                f"no broker was ever started in {self.folder.path}", "start one with `rolloutlog broker up`"
            )
        return state

    def _runs_in_another_name(self, state: BrokerState) -> bool:
        alive = [node for node in state.nodes if self.folder.is_alive(node)]
        if not alive or state.owner == self.owner:
            return False
        if state.owner is None or process.is_alive(state.owner):
            return True
        marked = [(node.process, self.folder.node(node.id).marker) for node in alive if node.process]
        return not all(process.wait_gone(orphan, marker, ORPHAN_PATIENCE) for orphan, marker in marked)

    def _launch(self, state: BrokerState, ids: Sequence[int]) -> BrokerState:
        if not ids:
            return state
        kafka = Kafka(java(), fetch(self.on_progress), self.fast_start)
        plan.wait_for_ports(state, ids)
        self._prepare(kafka, state, ids)
        state = state.model_copy(update={"owner": self.owner})
        try:
            for done, id in enumerate(ids):
                self.on_progress(Progress("start", done, len(ids)))
                state = self._launch_node(kafka, state, id)
            running = [node for node in state.nodes if self.folder.is_alive(node)]
            wait_ready(running, whole=len(running) == len(state.nodes), check=self.check, patience=START_PATIENCE)
        except BaseException:
            self._abandon(ids)
            raise
        self.on_progress(Progress("ready", len(ids), len(ids)))
        return state

    def _prepare(self, kafka: Kafka, state: BrokerState, ids: Sequence[int]) -> None:
        """Settings of the nodes, and a formatted data folder for those that have none."""
        folders = [self.folder.node(id) for id in ids]
        for id, folder in zip(ids, folders, strict=True):
            folder.write_settings(server_properties(state, id), LOG4J2)
        blank = [folder for folder in folders if not folder.is_formatted()]
        with ThreadPoolExecutor(len(ids)) as pool:
            for done, _ in enumerate(pool.map(kafka.format, blank, repeat(state.cluster_id)), start=1):
                self.on_progress(Progress("format", done, len(blank)))

    def _launch_node(self, kafka: Kafka, state: BrokerState, id: int) -> BrokerState:
        folder = self.folder.node(id)
        started = process.identify(self.lifetime.launch(kafka.server(folder), folder.path))
        if started is None:
            raise self._died(id)
        state = state.with_node(state.node(id).model_copy(update={"process": started}))
        self.folder.write(state)
        return state

    def _died(self, id: int) -> BrokerFailed:
        return BrokerFailed(f"node {id} of the broker stopped: {diagnosis.why(self.folder.node(id))}")

    def _abandon(self, ids: Sequence[int]) -> None:
        """End what a failed start left."""
        if (state := self.folder.read()) is not None:
            for id in ids:
                self._end(state.node(id), patience=0)

    def _end(self, node: NodeState, patience: float) -> None:
        if node.process is not None:
            process.stop(node.process, self.folder.node(node.id).marker, patience)
            self.lifetime.release(node.process.pid)

    def _forget(self, ids: Sequence[int]) -> None:
        """Write down that these nodes were stopped on purpose."""
        state = self.state()
        for id in ids:
            state = state.with_node(state.node(id).model_copy(update={"process": None}))
        self.folder.write(state)
