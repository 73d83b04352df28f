"""E0: verifiers v0 wrote flat chats, with or without the steps that sampled them (reference prime_verifiers 1.7).

Guarantees: messages become the nodes of one path, tool calls flat; each metric is kept once. Leaves out: what v0 never
recorded: an id, a run, a group and a policy; the steps' tokens are `steps`.
"""

from __future__ import annotations

from typing import Any, cast

import orjson

from rolloutlog.contract.json_text import parse
from rolloutlog.contract.vocabulary import Grain, RunKind, Status
from rolloutlog.producers.importing.foreign import Json, items, part
from rolloutlog.producers.importing.glance import Glance, task_key
from rolloutlog.producers.importing.graph import Graph
from rolloutlog.producers.importing.recorded import Identity, Origin, Recorded
from rolloutlog.producers.importing.steps import Path

KNOWN = frozenset(
    {
        "id", "example_id", "prompt", "completion", "answer", "info", "reward", "error", "timing", "is_completed",
        "is_truncated", "stop_condition", "metrics", "tool_defs", "token_usage", "task", "trajectory",
    }
)  # fmt: skip
"""Columns of v0; any other is a metric, said twice, or a column that the user asked for."""
UNNAMED = "default"
"""What v0 writes as `task` where there is only one environment."""


def identify(glance: Glance, origin: Origin) -> Identity:
    """Whose a record is; rollouts of one example in one file are of one task. It has no id of its own."""
    return Identity(
        traces=(),
        kind=origin.kind or RunKind.TRAIN,
        task=task_key(glance),
        scope=origin.scope,
        group_size=origin.group_size,
        scored=glance.reward is not None,
    )


def read(line: Json, glance: Glance, origin: Origin) -> Recorded:
    """The chat as a rollout. Raises Rejected."""
    prompt, completion = messages(line.pop("prompt"), "user"), messages(line.pop("completion"), "assistant")
    graph, path = Graph(None), Path()
    for step in items(line, "trajectory"):
        path.add(step, messages(step.pop("prompt"), "user"), messages(step.pop("completion"), "assistant"))
    path.close(prompt, completion)
    graph.add(path.nodes)
    record = _record(line, None if path.begins_with(prompt) else prompt)
    good = not record["errors"] and line.get("is_completed", True) and completion
    return Recorded(
        trajectory=graph.trajectory(record),
        status=Status.COMPLETED if good else Status.FAILED,
        env=_env(line.get("task"), origin),
        step=origin.written_step,
    )


def _env(name: Any, origin: Origin) -> str | None:
    """v0 names its environment beside the file, or in `task`, where `default` stands for none."""
    named = name if isinstance(name, str) else None
    return origin.env or (named if named != UNNAMED else None) or origin.default_env or named or None


def messages(said: Any, role: str) -> list[Json]:
    """Messages of a chat, tool calls flat; a plain text is one message of `role`. Raises TypeError."""
    if isinstance(said, str):
        return [{"role": role, "content": said}]
    return [_message(message) for message in cast("list[Json]", said or [])]


def _message(said: Json) -> Json:
    calls = items(said, "tool_calls")
    kept = {key: value for key, value in said.items() if key != "tool_calls"}
    return {**kept, "tool_calls": [_call(call) for call in calls]} if calls else kept


def _call(said: Json | str) -> Json:
    """`{id, type, name, arguments}`, from OpenAI's nesting and from its text; arguments are JSON text."""
    call: Json = parse(said) if isinstance(said, str) else said
    flat = {**{key: value for key, value in call.items() if key != "function"}, **part(call, "function")}
    if not isinstance(flat.get("arguments"), str):
        flat["arguments"] = orjson.dumps(flat.get("arguments") or {}).decode()
    return flat


def _record(line: Json, prompt: list[Json] | None) -> Json:
    """Everything beside the nodes; `prompt` where they don't hold it, since it may be most of the line."""
    metrics = part(line, "metrics")
    task = {"idx": line.get("example_id", line.get("id")), "name": line.get("task")}
    task |= {} if prompt is None else {"prompt": prompt}
    kept = ("timing", "is_completed", "is_truncated", "stop_condition", "tool_defs", "token_usage")
    return {
        "reward": line.get("reward"),
        "grain": Grain.NONE,
        "task": {**task, "answer": line.get("answer"), "info": line.get("info")},
        "metrics": metrics,
        "errors": [_error(line["error"])] if line.get("error") else [],
        "columns": {key: line[key] for key in line if key not in KNOWN and metrics.get(key) != line[key]},
        **{name: line[name] for name in kept if name in line},
    }


def _error(said: Any) -> Json:
    """As later eras write it; the chain is kept as it was."""
    if not isinstance(said, dict):
        return {"type": "Error", "message": str(said)}
    error = cast("Json", said)
    return {"type": str(error.get("error", "Error")), "message": str(error.get("error_chain_str", "")), **error}
