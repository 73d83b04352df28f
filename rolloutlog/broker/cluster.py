"""Starting and stopping the nodes of one broker.

Guarantees: one start at a time on a folder (the second finds the first one's broker); ports and cluster id are kept
over restarts; a start that fails leaves no process. Leaves out: what a new broker is (`plan`), how long processes
live (`lifetime`), and the two modes that callers see (`daemon`, `embedded`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import repeat
from pathlib import Path

from rolloutlog.broker.install.flock import locked
from rolloutlog.broker.install.jars import fetch
from rolloutlog.broker.install.java import java
from rolloutlog.broker.install.start_cache import start_cache
from rolloutlog.broker.install.start_progress import OnProgress, StartProgress, silent
from rolloutlog.broker.lifetime import Lifetime
from rolloutlog.broker.process import diagnosis, plan
from rolloutlog.broker.process import node_process as process
from rolloutlog.broker.process.data_folder import BrokerFolder
from rolloutlog.broker.process.kafka_commands import Kafka
from rolloutlog.broker.process.readiness import wait_ready
from rolloutlog.broker.process.server_properties import LOG4J2, server_properties
from rolloutlog.broker.process.state import BrokerState, NodeState, ProcessState
from rolloutlog.contract.errors import BrokerFailed

START_PATIENCE = 90.0
STOP_PATIENCE = 15.0
ORPHAN_PATIENCE = 5.0


@dataclass(frozen=True, slots=True)
class Cluster:
    """The nodes of the broker in `folder`, started with `lifetime` in the name of `owner` (None: in nobody's).

    `properties` are Kafka's own, for nodes that are started from now on. Java's start cache is used where there is one;
    nodes that are to make one write it as `makes` when they are stopped.
    """

    folder: BrokerFolder
    lifetime: Lifetime
    owner: ProcessState | None = None
    fast_start: bool = False
    on_progress: OnProgress = silent
    properties: Mapping[str, str] = field(default_factory=dict[str, str])
    makes: Path | None = None

    def start(self, nodes: int | None = None, port: int | None = None) -> BrokerState:
        """Start what doesn't run of the broker, wait until it is ready, and return it.

        `nodes` and `port` are for a new broker; None takes what is there. A broker that runs in another name is
        returned as it is: look at its `owner`.
        """
        self.folder.make()
        with locked(self.folder.lock):
            state = plan.choose_broker(self.folder, self.folder.read(), nodes, port)
            if self._runs_in_another_name(state):
                self._wait_ready(state)
                return state
            return self._bring_up(state, [node.id for node in state.nodes if not self.folder.is_alive(node)])

    def start_node(self, id: int) -> None:
        """Start one node and wait until it and all that run are ready together."""
        with locked(self.folder.lock):
            state = self.state()
            self._bring_up(state, [] if self.folder.is_alive(state.node(id)) else [id])

    def stop(self, ids: Sequence[int], patience: float = STOP_PATIENCE) -> None:
        """SIGTERM to these nodes at once, SIGKILL to those that are left after `patience` seconds (0: to all)."""
        with locked(self.folder.lock):
            state = self.state()
            nodes = [state.node(id) for id in ids]
            with ThreadPoolExecutor(len(nodes)) as pool:
                list(pool.map(self._end, nodes, repeat(patience)))
            for node in nodes:
                state = state.with_process(node.id, None)
            with suppress(BrokerFailed):  # a full disk: the dead are known as such without it
                self.folder.write(state)

    def check(self) -> None:
        """Raise BrokerFailed, saying why, when a node that was started doesn't run any more."""
        self._check([node for node in self.state().nodes if node.process is not None])

    def state(self) -> BrokerState:
        """The state file. Raises BrokerFailed when there is none."""
        if (state := self.folder.read()) is None:
            raise BrokerFailed(f"there is no broker in {self.folder.path}", "start one with `rolloutlog broker up`")
        return state

    def _runs_in_another_name(self, state: BrokerState) -> bool:
        """Whether someone else's nodes run here; nodes whose owner just died are given the time to follow it."""
        alive = [node for node in state.nodes if self.folder.is_alive(node)]
        if state.owner == self.owner:
            return not all(self.lifetime.holds(node.process) for node in alive)
        if state.owner is not None and not process.is_same(state.owner):
            return not all(self.folder.wait_gone(node, ORPHAN_PATIENCE) for node in alive)
        return bool(alive)

    def _bring_up(self, state: BrokerState, ids: Sequence[int]) -> BrokerState:
        """Start the nodes `ids` and wait until the broker is ready; if that fails, none of them is left."""
        try:
            if ids:
                state = self._launch(state, ids)
            self._wait_ready(state, ids)
        except BaseException:
            if (left := self.folder.read()) is not None:
                for id in ids:
                    self._end(left.node(id), patience=0)
            raise
        return state

    def _launch(self, state: BrokerState, ids: Sequence[int]) -> BrokerState:
        jars = fetch(self.on_progress)
        kafka = Kafka(java(), jars, self.fast_start, start_cache(java(), jars), self.makes)
        plan.wait_for_ports(state, ids)
        state = state.model_copy(update={"owner": self.owner})
        self.folder.write(state)
        self._prepare(kafka, state, ids)
        for done, id in enumerate(ids):
            self.on_progress(StartProgress("start", done, len(ids)))
            folder = self.folder.node(id)
            pid = self.lifetime.launch(kafka.server(folder), folder.path)
            state = state.with_process(id, process.identify(pid))
            self.folder.write(state)
        return state

    def _prepare(self, kafka: Kafka, state: BrokerState, ids: Sequence[int]) -> None:
        """Settings of the nodes, and formatted data folders for those that have none."""
        for id in ids:
            self.folder.node(id).prepare(server_properties(state, id, self.properties), LOG4J2)
        blank = [folder for id in ids if (folder := self.folder.node(id)).identity() is None]
        with ThreadPoolExecutor(len(ids)) as pool:
            for done, _ in enumerate(pool.map(kafka.format, blank, repeat(state.cluster_id)), start=1):
                self.on_progress(StartProgress("format", done, len(blank)))

    def _wait_ready(self, state: BrokerState, launched: Sequence[int] = ()) -> None:
        """Wait until what was launched and what ran before are ready together."""
        nodes = [node for node in state.nodes if node.id in launched or self.folder.is_alive(node)]
        whole = len(nodes) == len(state.nodes)
        wait_ready(nodes, whole=whole, check=partial(self._check, nodes), patience=START_PATIENCE)
        self.on_progress(StartProgress("ready", len(nodes), len(nodes)))

    def _check(self, nodes: Sequence[NodeState]) -> None:
        for node in nodes:
            if not self.folder.is_alive(node):
                why = diagnosis.why(self.folder.node(node.id))
                raise BrokerFailed(f"node {node.id} of the broker stopped: {why}")

    def _end(self, node: NodeState, patience: float) -> None:
        self.folder.stop(node, patience)
        self.lifetime.release(node.process)
