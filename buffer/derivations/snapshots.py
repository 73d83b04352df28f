"""Snapshots of an environment's state: which nodes of a source have one, and what names it (decisions/replay#92).

Guarantees: refs are opaque; an index that is no node's is told, not passed over. Leaves out: taking and restoring them,
which is the environment's.
"""

from __future__ import annotations

from typing import Any, cast

from rolloutlog.buffer.derivations.main_agent import base_of
from rolloutlog.contract.record.trajectory import Trajectory

KEY = "snapshots"
"""In `info`: an object of refs by the node's index in its trace, as text."""


def snapshots_of(trajectory: Trajectory) -> dict[int, Any]:
    """Refs by node; empty where the record has none. Raises ValueError."""
    info = cast("dict[str, Any]", trajectory.record.get("info") or {})
    refs = cast("dict[str, Any]", info.get(KEY) or {})
    if not isinstance(refs, dict):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ValueError(f"`info.{KEY}` isn't an object")
    if not refs:
        return {}
    base = base_of(trajectory)
    nodes = len(trajectory.nodes) - base
    return {base + _node(index, nodes): ref for index, ref in refs.items() if ref is not None}


def _node(index: str, nodes: int) -> int:
    if not (index.isascii() and index.isdecimal() and len(index) < 20 and str(int(index)) == index):
        raise ValueError(f"`info.{KEY}` has {index[:40]!r}, which is no index")
    if int(index) >= nodes:
        raise ValueError(f"`info.{KEY}` has node {index} of {nodes}")
    return int(index)
