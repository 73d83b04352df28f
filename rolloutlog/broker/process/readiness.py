"""When a broker is ready for clients.

Guarantees: ready means that every running node knows every running node, that each partition has a leader, and that
groups and transactions have their coordinators, so that no client's first request fails. Leaves out: loads still
being read by a coordinator (clients retry those by themselves).
"""

from __future__ import annotations

import time
from collections.abc import Callable

from rolloutlog.broker.process import frames as wire
from rolloutlog.broker.process.state import NodeState
from rolloutlog.contract.errors import BrokerFailed

POLL_SECONDS = 0.05
ANSWER_SECONDS = 2.0


def wait_ready(nodes: list[NodeState], *, whole: bool, check: Callable[[], None], patience: float) -> None:
    """Wait until `nodes` are ready together, at most `patience` seconds; `check` raises when one of them died.

    Only of a `whole` cluster each partition must have a leader: one that lies on a missing node alone can't.
    """
    deadline = time.monotonic() + patience
    while (missing := what_is_missing(nodes, whole)) is not None:
        check()
        if time.monotonic() > deadline:
            raise BrokerFailed(f"the broker wasn't ready after {patience:.0f} s: {missing}")
        time.sleep(POLL_SECONDS)


def what_is_missing(nodes: list[NodeState], whole: bool) -> str | None:
    """What keeps `nodes` from being ready, in words; None when nothing does."""
    wanted = {node.id for node in nodes}
    for node in nodes:
        try:
            known = wire.metadata(node.port, ANSWER_SECONDS)
            if absent := wanted - known.nodes:
                return f"node {node.id} doesn't see node {min(absent)}"
            if whole and known.leaderless:
                return f"{known.leaderless} partitions have no leader"
            for kind in ("group", "transaction"):
                if not wire.has_coordinator(node.port, kind, ANSWER_SECONDS):
                    return f"there is no coordinator of the {kind}s"
        except OSError as error:
            return f"node {node.id} doesn't answer on port {node.port} ({error})"
    return None
