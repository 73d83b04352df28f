"""One rollout as a record of July 2026, and its row of the index (design/eras#july).

Guarantees: the line has the fields of that layout and no others, and the row's span is the line's bytes without its
end; a record that was imported from that layout with its group is written as it was, but for numbers that float32
doesn't hold. What the layout has no place for (several agents, calls, tools, a run) is in a stamp within `info`
(`stamping`). Leaves out: files (`rolloutlog.consumers.exporting.layouts`).
"""

from __future__ import annotations

from typing import Any, cast

import orjson

from rolloutlog.contract.record.graph import leaf_count
from rolloutlog.contract.vocabulary import Status
from rolloutlog.formats.writers.derived_task import replay_task
from rolloutlog.formats.writers.node_columns import Json, nodes_of
from rolloutlog.formats.writers.stamping import Dialect, LineIdentity
from rolloutlog.formats.writers.standing import StandingRollout

TRACE = (
    "id", "task", "nodes", "rewards", "metrics", "info", "extra_usage", "is_completed", "stop_condition", "errors",
    "timing",
)  # fmt: skip
DIALECT = Dialect(frozenset(("E1", "E1b")), frozenset(), strict=True)
SPANS = ("setup", "generation", "finalize", "scoring")
UNTIMED = {"start": 0.0, "end": 0.0}


def record_of(standing: StandingRollout) -> bytes:
    """The line, without its end."""
    return DIALECT.line(standing, lambda: _said(standing), lambda: _bare(standing))


def _said(standing: StandingRollout) -> tuple[Json, LineIdentity]:
    trace = _trace(standing)
    stamp = _object(cast("Json", trace["info"]), "prime_rl")
    return trace, LineIdentity(None, stamp.get("group_id"), stamp.get("env_name"))


def _bare(standing: StandingRollout) -> Json:
    """A trace of which nothing can be said."""
    nothing: Json = {"task": {}, "nodes": [], "rewards": {}, "metrics": {}, "info": {}, "extra_usage": [], "errors": []}
    said = {"id": _trace_id(standing), "is_completed": False, "stop_condition": None, "timing": _timing({})}
    return {name: (nothing | said)[name] for name in TRACE}


def row_of(standing: StandingRollout, offset: int, line: bytes) -> bytes:
    """The row of the index for a line at a byte offset of its file."""
    trajectory = standing.rollout.trajectory
    task = _flat_task(standing)
    span = trajectory.policy_span
    row = {
        "trace": _trace_id(standing),
        "task_idx": _scalar(task.get("idx")),
        "task_name": _scalar(task.get("name")),
        "reward": standing.reward,
        "branches": leaf_count(trajectory.parents),
        "turns": sum(trajectory.sampled_nodes),
        "stop": trajectory.record.get("stop_condition"),
        "offset": offset,
        "len": len(line),
        "step": standing.step,
        "policy_version": span[0].version if span else None,
    }
    return orjson.dumps(row)


def _trace(standing: StandingRollout) -> Json:
    record = standing.rollout.trajectory.record
    said: Json = {
        "id": _trace_id(standing),
        "task": _flat_task(standing),
        "nodes": [_node(node) for node in nodes_of(standing.rollout.trajectory, {})],
        "rewards": _rewards(record, standing.reward),
        "metrics": {name: value for name, value in _object(record, "metrics").items() if value is not None},
        "info": {**_object(record, "info"), "prime_rl": _stamp(standing)},
        "extra_usage": record.get("extra_usage") or [],
        "is_completed": bool(record.get("is_completed", standing.rollout.status is Status.COMPLETED)),
        "stop_condition": record.get("stop_condition"),
        "errors": [_error(error) for error in cast("list[Any]", record.get("errors") or [])],
        "timing": _timing(_object(record, "timing")),
    }
    return {name: said[name] for name in TRACE}


def _trace_id(standing: StandingRollout) -> str:
    slot, record = standing.rollout.slot, standing.rollout.trajectory.record
    return str(slot.trace or record.get("id") or slot.rollout)


def _flat_task(standing: StandingRollout) -> Json:
    task = _object(standing.rollout.trajectory.record, "task")
    if (outer := replay_task(standing)) is not None:
        task = {**outer, "source_task": task}
    data = task.get("data")
    return cast("Json", data) if isinstance(data, dict) else task


def _node(node: Json) -> Json:
    facts = cast("Json", node["facts"])
    message = cast("Json", facts.get("message") or {"role": "user", "content": ""})
    arrays = {name: node[name] for name in ("token_ids", "mask", "is_content", "logprobs")}
    last = {name: facts.get(name) for name in ("finish_reason", "usage")}
    return {"parent": node["parent"], "message": message, "sampled": bool(facts.get("sampled")), **arrays, **last}


def _rewards(record: Json, reward: float | None) -> Json:
    said = {name: _score(score) for name, score in _object(record, "rewards").items() if score is not None}
    return said or ({} if reward is None else {"reward": reward})


def _score(score: Any) -> float:
    if isinstance(score, dict):
        weighted = cast("Json", score)
        return float(weighted["score"]) * float(weighted.get("weight", 1.0))
    return float(score)


def _stamp(standing: StandingRollout) -> Json:
    """`info.prime_rl`, as it was recorded, else from the slot."""
    slot, record = standing.rollout.slot, standing.rollout.trajectory.record
    said = _object(record, "info").get("prime_rl")
    if isinstance(said, dict):
        return cast("Json", said)
    span = standing.rollout.trajectory.policy_span
    group = _object(_object(record, "episode"), "group").get("id")
    return {
        "kind": slot.kind.value,
        "env_name": slot.env or "",
        "group_id": group or record.get("group_id") or _object(record, "info").get("group_id") or slot.group,
        "policy_version": span[0].version if span else None,
        "is_filtered": bool(slot.filtered),
    }


def _error(error: Any) -> Json:
    said = cast("Json", error) if isinstance(error, dict) else {"type": "Error", "message": str(error)}
    return {"type": said.get("type"), "message": said.get("message"), "traceback": said.get("traceback")}


def _timing(said: Json) -> Json:
    spans = {name: _object(said, name) or UNTIMED for name in SPANS}
    if "agent" in said and "generation" not in said:
        spans["generation"] = _object(said, "agent")
    spans = {name: {edge: span.get(edge, 0.0) for edge in ("start", "end")} for name, span in spans.items()}
    return {"start": said.get("start", 0.0), **spans}


def _scalar(value: Any) -> str | int | None:
    return value if isinstance(value, str | int) else None


def _object(whole: Json, name: str) -> Json:
    value = whole.get(name)
    return cast("Json", value) if isinstance(value, dict) else {}
