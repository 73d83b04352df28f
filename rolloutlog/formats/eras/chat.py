"""E0: verifiers v0 wrote flat chats, with or without the steps that sampled them (design/eras#chats).

Guarantees: messages become the nodes of one path, tool calls flat; prompt, info and each metric are kept once. Leaves
out: what v0 never recorded: an id, a run, a group and a policy (a hosted download has run and step); columns that are
kept as text are `chat_text`, the steps' tokens `chat_steps`.
"""

from __future__ import annotations

from typing import Any, cast

import orjson

from rolloutlog.contract.vocabulary import Grain, RunKind, Status
from rolloutlog.contract.wire.json_text import parse
from rolloutlog.formats.eras.chat_steps import Path
from rolloutlog.formats.eras.chat_text import messages_in, unpack
from rolloutlog.formats.eras.message_graph import Graph
from rolloutlog.formats.eras.prompts import chat_prompt
from rolloutlog.formats.foreign.glance import Glance, example_key
from rolloutlog.formats.foreign.json_parts import Json, items, part
from rolloutlog.formats.foreign.recorded import Origin, RecordedRollout, TraceIdentity

KNOWN = frozenset(
    {
        "id", "example_id", "prompt", "completion", "answer", "info", "reward", "error", "timing", "is_completed",
        "is_truncated", "stop_condition", "metrics", "tool_defs", "token_usage", "task", "trajectory", "advantage",
        "problem_id", "run_id", "step", "env_name",
    }
)  # fmt: skip
"""Columns that are read; any other is a metric, said twice, or a column that the user asked for."""
UNNAMED = "default"
"""What v0 writes as `task` where there is only one environment."""


def identify(glance: Glance, origin: Origin) -> TraceIdentity:
    """Whose a record is; it has no id of its own. A hosted run's download names run, step and problem."""
    run, task, prompt = _run(glance), example_key(glance), chat_prompt(glance)
    env = "/".join(filter(None, (_env(glance.env_name, glance.task, origin), _named(glance.task))))
    step, is_whole = _step(glance.step), run is not None and bool(task)
    return TraceIdentity(
        run=run,
        group="/".join((str(step), env, task, prompt)) if is_whole and step is not None else None,
        kind=origin.kind or RunKind.TRAIN,
        env=env,
        task=task,
        prompt=prompt,
        scope=run,
        group_size=origin.group_size,
        scored=glance.reward is not None,
    )


def read(line: Json, glance: Glance, origin: Origin) -> RecordedRollout:
    """The chat as a rollout. Raises Rejected."""
    unpack(line)
    prompt, completion = messages(line.pop("prompt"), "user"), messages(line.pop("completion"), "assistant")
    graph, path = Graph(None), Path()
    for step in items(line, "trajectory"):
        path.add(step, messages(step.pop("prompt"), "user"), messages(step.pop("completion"), "assistant"))
    path.close(prompt, completion)
    graph.add(path.nodes)
    record = _record(line, None if path.begins_with(prompt) else prompt)
    good = not record["errors"] and line.get("is_completed", True) and completion
    step = _step(line.get("step")) if _run(glance) else None
    return RecordedRollout(
        trajectory=graph.trajectory(record),
        status=Status.COMPLETED if good else Status.FAILED,
        env=_env(glance.env_name, glance.task, origin),
        step=origin.written_step if step is None else step,
        notes={} if line.get("advantage") is None else {"advantage": line["advantage"]},
    )


def _run(glance: Glance) -> str | None:
    return str(glance.run_id) if isinstance(glance.run_id, str | int) and glance.run_id != "" else None


def _step(said: Any) -> int | None:
    return said if isinstance(said, int) and not isinstance(said, bool) and said >= 0 else None


def _named(task: Any) -> str | None:
    """The environment that `task` names, if any."""
    return task if isinstance(task, str) and task not in ("", UNNAMED) else None


def _env(said: str | None, task: Any, origin: Origin) -> str | None:
    """The environment is said in the line, beside the file, or in `task`; the user's word is the last but `default`."""
    unnamed = task if isinstance(task, str) else None
    return next(filter(None, (said, origin.env, _named(task), origin.default_env, unnamed)), None)


def messages(said: Any, role: str) -> list[Json]:
    """Messages of a chat, tool calls flat; a text is the chat that it holds, else one message of `role`.

    Raises TypeError, Rejected(shape).
    """
    found = messages_in(said) if isinstance(said, str) else said
    if isinstance(found, str):
        return [{"role": role, "content": found}]
    return [_message(message) for message in cast("list[Json]", found or [])]


def _message(said: Json) -> Json:
    calls = said.get("tool_calls")
    if isinstance(calls, str):
        said = {**said, "tool_calls": orjson.loads(calls) if calls.strip() else None}
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
    named = next((line[name] for name in ("example_id", "problem_id", "id") if line.get(name) is not None), None)
    task = {"idx": named, "name": line.get("task")}
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
