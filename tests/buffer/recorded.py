"""Trajectories straight from recorded verifiers traces, so that the rules are tested without an importer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson

from rolloutlog.contract.record.node import Node
from rolloutlog.contract.record.trajectory import Trajectory

GOLDEN = Path(__file__).parent.parent / "data" / "golden"


def golden(name: str) -> Any:
    """One of the golden files."""
    return orjson.loads((GOLDEN / name).read_bytes())


def traces(name: str) -> list[dict[str, Any]]:
    """Raw traces of a recorded file, of bare traces or of episodes."""
    lines = [orjson.loads(line) for line in (GOLDEN / name).read_bytes().splitlines()]
    return [trace for line in lines for trace in line.get("traces", [line])]


def trajectory_of(trace: dict[str, Any]) -> Trajectory:
    """Columns and record of one raw trace; the policy of July's stamp, if there is one."""
    stamp = trace["info"].get("prime_rl", {})
    nodes = [_node(node, stamp.get("policy_version", 0)) for node in trace["nodes"]]
    record = {name: value for name, value in trace.items() if name != "nodes"}
    return Trajectory.build(nodes, {**record, "reward": _reward(trace["rewards"])})


def july() -> dict[str, Trajectory]:
    """The cases of July's run by their name in the golden files."""
    names = golden("case_names.json")
    return {names[trace["id"]]: trajectory_of(trace) for trace in traces("july.jsonl") if trace["id"] in names}


def _node(node: dict[str, Any], version: int) -> Node:
    parent = node.get("parent")
    return Node(
        message=node["message"],
        parent=-1 if parent is None else parent,
        sampled=node["sampled"],
        token_ids=node["token_ids"],
        mask=[int(kept) for kept in node["mask"]],
        logprobs=node["logprobs"],
        segments=[(0, version, 0)] if node["logprobs"] else [],
    )


def _reward(rewards: dict[str, Any]) -> float:
    return sum(r["score"] * r["weight"] if isinstance(r, dict) else r for r in rewards.values())


def say(role: str, content: str = "", parent: int = -1, *, calls: str = "", answers: str = "", tokens: int = 0) -> Node:
    """A node by hand: assistants are sampled; `calls` and `answers` are ids, one letter each."""
    message: dict[str, Any] = {"role": role, "content": content}
    if calls:
        message["tool_calls"] = [{"id": call, "name": "f", "arguments": "{}"} for call in calls]
    if answers:
        message["tool_call_id"] = answers
    return Node(message=message, parent=parent, sampled=role == "assistant", token_ids=[1] * tokens, mask=[0] * tokens)
