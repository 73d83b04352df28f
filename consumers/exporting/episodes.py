"""One rollout as a line of era E4: an episode as verifiers 0.4.0 writes and reads it (reference prime_verifiers 1.2).

Guarantees: an episode that was imported from that layout is written as it was, byte for byte, but for numbers that
float32 doesn't hold; any other record becomes an episode that verifiers 0.4.0 reads, without inventing what it doesn't
have. Leaves out: files (`layouts`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, cast

import orjson

from rolloutlog.consumers.exporting.arrays import Json, nodes_of
from rolloutlog.consumers.exporting.standing import Standing
from rolloutlog.contract.vocabulary import RunKind, Status

EPISODE = (
    "id", "env", "task", "group", "run", "ok", "is_timeout", "errors", "traces", "num_input_tokens",
    "num_output_tokens", "num_total_tokens",
)  # fmt: skip
TRACE = (
    "version", "id", "verifiers", "task", "agent", "tools", "nodes", "calls", "mm_token_type_id_map",
    "request_rewrites", "response_rewrites", "rewards", "metrics", "info", "root_reply", "extra_usage", "is_completed",
    "ok", "stop_condition", "is_timeout", "errors", "timing", "num_input_tokens", "num_output_tokens",
    "num_total_tokens",
)  # fmt: skip
NODE = (
    "parent", "tools", "semantic_parents", "message", "sampled", "timestamp", "token_ids", "mask", "is_content",
    "logprobs", "advantages", "reference_logprobs", "trainer_logprobs", "entropies",
)  # fmt: skip
"""Keys in the order in which verifiers 0.4.0 writes them; others follow."""
OURS = frozenset({"reward", "agents", "episode", "grain", "nodes", "logprob_precision", "replay_task", "columns"})
"""Keys of a record that are no trace's."""
STAMPS = frozenset({"run", "kind", "env_name", "group_id", "policy_version", "eval_step"})
"""Keys of earlier eras' traces that an episode says of itself."""


def episode_of(standing: Standing, *, trained: bool) -> bytes:
    """The line, without its end. `trained`: the copy of what was trained, with the advantage and late arrays."""
    record = standing.rollout.trajectory.record
    episode = cast("Json | None", record.get("episode"))
    traces = _traces(standing, trained=trained)
    if episode is None:
        episode = _new_episode(standing)
    task = episode.get("task") or (traces[0]["task"] if traces else _task(record))
    line = {**episode, "task": task, "traces": traces}
    return orjson.dumps(_ordered(line, EPISODE), option=orjson.OPT_SERIALIZE_NUMPY)


def says_group(standing: Standing) -> bool:
    """True if the episode names its group."""
    episode = cast("Json | None", standing.rollout.trajectory.record.get("episode"))
    return episode is None or bool(episode.get("group"))


def _traces(standing: Standing, *, trained: bool) -> list[Json]:
    """The traces of the rollout, one an agent; a record without a table of agents is one trace."""
    record = standing.rollout.trajectory.record
    agents = cast("list[Json]", record.get("agents") or [{"root": 0}])
    nodes = list(nodes_of(standing.rollout.trajectory, standing.notes if trained else {}))
    if "agents" not in record and not nodes and record.get("episode") is not None:
        return []
    main = {key: value for key, value in record.items() if key not in OURS}
    traces: list[Json] = []
    for number, agent in enumerate(agents):
        own = cast("Json", agent.get("record") or main)
        root = int(agent.get("root", 0))
        trace = {**own, "task": _task(record if own is main else own), "nodes": _nodes(nodes, number, root)}
        traces.append(_trace(standing, trace, agent, trained=trained))
    return traces


def _trace(standing: Standing, trace: Json, agent: Json, *, trained: bool) -> Json:
    slot = standing.rollout.slot
    if "episode" not in standing.rollout.trajectory.record:
        trace = {key: value for key, value in trace.items() if key not in STAMPS and value is not None}
        trace["rewards"] = _rewards(trace, standing.reward)
        trace["agent"] = _agent(trace, agent)
        trace.setdefault("id", slot.trace or slot.rollout)
        trace.setdefault("ok", standing.rollout.status is Status.COMPLETED)
        trace.setdefault("is_completed", standing.rollout.status is Status.COMPLETED)
    if trained and (said := _advantage(standing, trace)) is not None:
        trace["info"] = {**(trace.get("info") or {}), "advantage": said}
    return _ordered(trace, TRACE)


def _advantage(standing: Standing, trace: Json) -> float | None:
    each = cast("Mapping[str, float]", standing.notes.get("advantage_of") or {})
    return each.get(str(trace.get("id")), standing.advantage)


def _nodes(nodes: Iterable[Json], agent: int, root: int) -> list[Json]:
    written: list[Json] = []
    for node in nodes:
        if node["agent"] != agent:
            continue
        facts = cast("Json", dict(node["facts"]))
        for derived in ("temperature", "top_p", "top_k", "finish_reason", "usage", "step"):
            facts.pop(derived, None)
        if root and facts.get("semantic_parents"):
            facts["semantic_parents"] = [{**edge, "node": edge["node"] - root} for edge in facts["semantic_parents"]]
        if facts.get("message") is None:
            facts["message"] = {"role": "assistant" if facts.get("sampled") else "user", "content": ""}
        if node["parent"] is not None:
            facts["parent"] = node["parent"] - root
        arrays = {name: node[name] for name in ("token_ids", "mask", "is_content", "logprobs")}
        written.append(_ordered({**facts, **arrays, **node["late"]}, NODE))
    return written


def _task(record: Json) -> Json:
    """The task as it was recorded; a flat one becomes a typed one."""
    outer, task = record.get("replay_task"), cast("Json", record.get("task") or {})
    if isinstance(outer, dict):
        task = _with_source(cast("Json", outer), task)
    if isinstance(task.get("data"), dict) and "type" in task:
        return task
    return {"type": "Task", "data": {key: value for key, value in task.items() if value is not None}}


def _with_source(outer: Json, innermost: Json) -> Json:
    """A derived task as its replay environment wrote it."""
    data = outer.get("data")
    if isinstance(data, dict):
        return {**outer, "data": {**cast("Json", data), "source_task": innermost}}
    return {**outer, "source_task": innermost}


def _rewards(trace: Json, reward: float | None) -> Json:
    said = cast("Json", trace.get("rewards") or {})
    if said:
        return {name: _weighted(score) for name, score in said.items()}
    return {} if reward is None else {"reward": {"score": reward, "weight": 1.0}}


def _weighted(score: Any) -> Any:
    return {"score": float(score), "weight": 1.0} if isinstance(score, int | float) else score


def _agent(trace: Json, agent: Json) -> Json:
    said = cast("Json", trace.get("agent") or {})
    config = said.get("config")
    name, trainable = agent.get("name", "agent"), agent.get("trainable", True)
    return {"config": config if isinstance(config, dict) else {}, "name": name, "trainable": trainable}


def _new_episode(standing: Standing) -> Json:
    """What an episode says of itself, from the record's slot and policies."""
    slot, span = standing.rollout.slot, standing.rollout.trajectory.policy_span
    work: Json = {"type": slot.kind.value, "step": slot.dispatch_step if slot.dispatch_step is not None else 0}
    if span is not None:
        work["policy"] = {"start": span[0].version, "end": span[1].version}
    run: Json = {"type": "train", "id": slot.run or slot.group, "work": work}
    if slot.kind is RunKind.EVAL and span is None:
        run = {"type": "eval", "id": slot.run or slot.group}
    return {
        "id": slot.rollout,
        "env": {"id": slot.env or ""},
        "group": {"id": _group(standing)},
        "run": run,
        "ok": standing.rollout.status is Status.COMPLETED,
        "errors": [],
    }


def _group(standing: Standing) -> str:
    """The group as the source named it, else our own id."""
    record = standing.rollout.trajectory.record
    info = cast("Json", record.get("info") or {})
    stamp = cast("Json", info.get("prime_rl") or {})
    return str(stamp.get("group_id") or record.get("group_id") or info.get("group_id") or standing.rollout.slot.group)


def _ordered(said: Json, order: tuple[str, ...]) -> Json:
    return {**{key: said[key] for key in order if key in said}, **said}
