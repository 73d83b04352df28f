"""One rollout as a line of era E4: an episode as verifiers 0.4.0 writes and reads it (design/eras#episodes).

Guarantees: an episode that was imported from that layout with its group is written as it was, byte for byte, but for
numbers that float32 doesn't hold; any other record becomes an episode that verifiers 0.4.0 reads, without inventing
what it doesn't have, and gets a stamp (`stamping`). Leaves out: files (`rolloutlog.consumers.exporting.layouts`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from rolloutlog.contract.vocabulary import RunKind, Status
from rolloutlog.formats.writers.derived_task import OF_DERIVED, recorded_replay_task, replay_task
from rolloutlog.formats.writers.node_columns import LATE, Json, nodes_of
from rolloutlog.formats.writers.stamping import Dialect, LineIdentity
from rolloutlog.formats.writers.standing import StandingRollout

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
DIALECT = Dialect(
    frozenset(("E4", "E5")), frozenset(("trained", "step", "advantage", "advantage_of", *LATE)), strict=False
)
OURS = OF_DERIVED | {"reward", "agents", "episode", "grain", "nodes", "logprob_precision", "columns"}
"""Keys of a record that are no trace's."""
STAMPS = frozenset({"run", "kind", "env_name", "group_id", "policy_version", "eval_step"})
"""Keys of earlier eras' traces that an episode says of itself."""


def episode_of(standing: StandingRollout, *, trained: bool) -> bytes:
    """The line, without its end. `trained`: the copy of what was trained, with the advantage and late arrays."""

    def copy(*, trained: bool = trained) -> tuple[Json, LineIdentity]:
        return _episode(standing, trained=trained)

    return DIALECT.line(standing, copy, lambda: _bare(standing), [lambda: copy(trained=not trained)])


def _episode(standing: StandingRollout, *, trained: bool) -> tuple[Json, LineIdentity]:
    record = standing.rollout.trajectory.record
    episode = cast("Json | None", record.get("episode"))
    traces = _traces(standing, trained=trained)
    if episode is None:
        episode = _new_episode(standing)
    task = episode.get("task") or (traces[0]["task"] if traces else _task(record, replay_task(standing)))
    return _ordered({**episode, "task": task, "traces": traces}, EPISODE), _said(episode)


def _bare(standing: StandingRollout) -> Json:
    """An episode of which nothing can be said."""
    slot = standing.rollout.slot
    return {"id": slot.rollout, "env": {"id": slot.env or ""}, "task": {"type": "Task", "data": {}}, "traces": []}


def _said(episode: Json) -> LineIdentity:
    """What an episode says of whose it is; its parts may be objects or names."""
    run, group, env = (_named(episode.get(name)) for name in ("run", "group", "env"))
    return LineIdentity(run.get("id"), group.get("id"), env.get("name") or env.get("id"))


def _named(part: Any) -> Json:
    return cast("Json", part) if isinstance(part, dict) else {"id": part}


def _traces(standing: StandingRollout, *, trained: bool) -> list[Json]:
    """The traces of the rollout, one an agent; a record without a table of agents is one trace."""
    record = standing.rollout.trajectory.record
    agents = cast("list[Json]", record.get("agents") or [{"root": 0}])
    nodes = list(nodes_of(standing.rollout.trajectory, standing.notes if trained else {}))
    if "agents" not in record and not nodes and record.get("episode") is not None:
        return []
    shared = {key: value for key, value in record.items() if key not in OURS}
    main = next((number for number, agent in enumerate(agents) if agent.get("trainable", True)), 0)
    traces: list[Json] = []
    for number, agent in enumerate(agents):
        own = cast("Json", agent.get("record") or record)
        outer = replay_task(standing) if own is record else recorded_replay_task(own)
        trace = {**(shared if own is record else _plain(own)), "task": _task(own, outer)}
        trace["nodes"] = _nodes(nodes, number, int(agent.get("root", 0)))
        if "episode" not in record:
            trace = _new_trace(standing, trace, agent, number)
        if number == main and standing.notes.get("reward", standing.reward) != standing.rollout.trajectory.reward:
            trace["rewards"] = _rewards({}, standing.reward)
        if trained and (said := _advantage(standing, trace)) is not None:
            trace["info"] = {**(trace.get("info") or {}), "advantage": said}
        traces.append(_ordered(trace, TRACE))
    return traces


def _new_trace(standing: StandingRollout, trace: Json, agent: Json, number: int) -> Json:
    """What a record that was never an episode's says of one agent; each trace has an id of its own."""
    slot, good = standing.rollout.slot, standing.rollout.status is Status.COMPLETED
    own_id = slot.trace or slot.rollout
    made = {key: value for key, value in trace.items() if key not in STAMPS and value is not None}
    made["rewards"] = _rewards(made, agent.get("reward", standing.reward))
    made["agent"] = _agent(made, agent)
    said = {"id": agent.get("trace") or (f"{own_id}/{number}" if number else own_id), "ok": good, "is_completed": good}
    return {**said, **made}


def _advantage(standing: StandingRollout, trace: Json) -> float | None:
    each = cast("Mapping[str, float]", standing.notes.get("advantage_of") or {})
    return each.get(str(trace.get("id")), standing.advantage)


def _nodes(nodes: Sequence[Json], agent: int, root: int) -> list[Json]:
    """The nodes of one agent, which name one another by their places among themselves."""
    own = {place: number for number, place in enumerate(i for i, node in enumerate(nodes) if node["agent"] == agent)}
    written: list[Json] = []
    for node in (nodes[place] for place in own):
        facts = cast("Json", dict(node["facts"]))
        for derived in ("temperature", "top_p", "top_k", "finish_reason", "usage", "step"):
            facts.pop(derived, None)
        if root and facts.get("semantic_parents"):
            facts["semantic_parents"] = [{**edge, "node": edge["node"] - root} for edge in facts["semantic_parents"]]
        if facts.get("message") is None:
            facts["message"] = {"role": "assistant" if facts.get("sampled") else "user", "content": ""}
        if node["parent"] in own:
            facts["parent"] = own[node["parent"]]
        arrays = {name: node[name] for name in ("token_ids", "mask", "is_content", "logprobs")}
        written.append(_ordered({**facts, **arrays, **node["late"]}, NODE))
    return written


def _plain(trace: Json) -> Json:
    return {key: value for key, value in trace.items() if key not in OF_DERIVED}


def _task(record: Json, outer: Json | None) -> Json:
    """The task as it was recorded, within what derived it; a flat one becomes a typed one."""
    task = cast("Json", record.get("task") or {})
    if outer is not None:
        task = _with_source(outer, task)
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


def _new_episode(standing: StandingRollout) -> Json:
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


def _group(standing: StandingRollout) -> str:
    """The group as the source named it, else our own id."""
    record = standing.rollout.trajectory.record
    info = cast("Json", record.get("info") or {})
    stamp = cast("Json", info.get("prime_rl") or {})
    return str(stamp.get("group_id") or record.get("group_id") or info.get("group_id") or standing.rollout.slot.group)


def _ordered(said: Json, order: tuple[str, ...]) -> Json:
    return {**{key: said[key] for key in order if key in said}, **said}
