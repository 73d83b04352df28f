"""Snapshots of an environment's state: which nodes of a source have one, and what names it (decisions/replay#92).

Guarantees: refs are opaque; an index that is no node's is told, not passed over. Leaves out: taking and restoring them,
which is the environment's.
"""

from __future__ import annotations

from typing import Any, cast

from rolloutlog.contract.record.trajectory import Trajectory

KEY = "snapshots"
"""In `info`: an object of refs by the node's index, as text."""


def snapshots_of(trajectory: Trajectory) -> dict[int, Any]:
    """Refs by node; empty where the record has none. Raises ValueError."""
    info = trajectory.record.get("info") or {}
    said: Any = info.get(KEY)
    if said is None:
        return {}
    if not isinstance(said, dict):
        raise ValueError(f"`info.{KEY}` isn't an object")
    refs = cast("dict[str, Any]", said)
    return {_node(index, len(trajectory.nodes)): ref for index, ref in refs.items() if ref is not None}


def _node(index: str, nodes: int) -> int:
    if not (index.isascii() and index.isdecimal() and len(index) < 20 and str(int(index)) == index):
        raise ValueError(f"`info.{KEY}` has {index[:40]!r}, which is no index")
    if int(index) >= nodes:
        raise ValueError(f"`info.{KEY}` has node {index} of {nodes}")
    return int(index)
