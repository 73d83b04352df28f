"""What one verifiers v1 trace says beside its nodes, in every era that has traces (design/eras#trace).

Guarantees: reward, status, policy and lineage are read by one rule each. Leaves out: where a group and a run are named,
which differs by era.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any, cast

from rolloutlog.contract.numbers import is_natural, is_reward
from rolloutlog.contract.vocabulary import Grain, SeedKind, Status
from rolloutlog.formats.eras.message_graph import Graph
from rolloutlog.formats.foreign.glance import VersionSpan
from rolloutlog.formats.foreign.json_parts import Json, items, part
from rolloutlog.formats.foreign.recorded import Lineage, Origin, RecordedRollout

_DERIVED_NAME = re.compile(r"(?:(continue):([0-9a-f]{8}):(?:compaction|tool-call)\d+(?:-\d+)?|(recheck):([0-9a-f]{8}))")
"""Names that the record design gave to derived tasks (decisions/replay#60, #67 and #73)."""
_ROUNDING_VERSION = (0, 4)
"""verifiers rounds log-probs in its JSON from 0.4.0 on."""
_SAMPLING = ("temperature", "top_p", "top_k")


def read_bare(
    line: Json,
    origin: Origin,
    version: int | None,
    *,
    env: str | None,
    step: int | None = None,
    filtered: bool | None = None,
) -> RecordedRollout:
    """A line that is one trace, as a rollout; `version` is the policy's at its start. Raises Rejected."""
    reward = reward_of(line.get("rewards"))
    status, lineage = status_of(line), take_lineage(line)
    add_sampling(line)
    graph = Graph(version)
    graph.add(line.pop("nodes"))
    notes = origin.trained | take_advantage(line) | graph.late
    record = {**line, "reward": reward, "grain": Grain.NONE if version is None else Grain.EPISODE}
    if "trainable" in part(line, "agent"):
        record["agents"] = [agent_of(line, reward, 0)]
    return RecordedRollout(
        trajectory=graph.trajectory(record, rounds=rounds_logprobs(line)),
        status=status,
        env=env,
        policy=None if version is None else VersionSpan(version, version),
        step=origin.written_step if step is None else step,
        filtered=filtered,
        lineage=lineage,
        notes=notes,
    )


def take_advantage(trace: Json) -> Json:
    """Take the advantage, which only the copy of what was trained has, out of a trace's `info`; as notes."""
    info = part(trace, "info")
    return {"advantage": info.pop("advantage")} if "advantage" in info else {}


def agent_of(trace: Json, reward: float | None, root: int) -> Json:
    """A row of the record's table of agents (design/record#agents); `root` is the index of the trace's first node."""
    agent = part(trace, "agent")
    name, trainable = agent.get("name", "agent"), agent.get("trainable", True)
    return {"name": name, "trainable": trainable, "reward": reward, "root": root, "trace": trace["id"]}


def reward_of(rewards: Any) -> float | None:
    """Sum of scores, weighted where a weight is recorded (decisions/replay#27); None where nothing was scored. Raises
    TypeError."""
    if rewards is None:
        return None
    if not isinstance(rewards, dict):
        raise TypeError(f"`rewards` is {type(rewards).__name__}, not an object")
    scores = list(cast("Json", rewards).values())
    scored = [_score(score) for score in scores if score is not None]
    return float(sum(scored)) if scored or not scores else None


def is_scored(rewards: Any) -> bool:
    """True unless a trace was written before it was scored."""
    if not isinstance(rewards, dict):
        return False
    scores = cast("Json", rewards).values()
    return not scores or any(score is not None for score in scores)


def _score(score: Any) -> float:
    """Raises TypeError."""
    weighted = cast("Json", score) if isinstance(score, dict) else {"score": score}
    parts = weighted["score"], weighted.get("weight", 1.0)
    if bool in map(type, parts):
        raise TypeError(f"a score is a number, not {score}")
    return parts[0] * parts[1]


def status_of(trace: Json) -> Status:
    """Completed where it ended without an error and has nodes; else failed: there is no result."""
    ended = trace.get("is_completed", True) and trace.get("ok", True) and not trace.get("errors")
    return Status.COMPLETED if ended and trace.get("nodes") else Status.FAILED


def rounds_logprobs(trace: Json) -> bool:
    """True for a producer that writes log-probs with 4 decimals unless told otherwise."""
    return _rounds(str(part(trace, "verifiers").get("version")))


@lru_cache(maxsize=64)
def _rounds(version: str) -> bool:
    return tuple(int(number) for number in re.findall(r"\d+", version)[:2]) >= _ROUNDING_VERSION


def add_sampling(trace: Json) -> None:
    """Say at each sampled node how it was sampled, where its model call does (design/eras#trace)."""
    nodes = items(trace, "nodes")
    for call in items(trace, "calls"):
        node, sampling = call.get("node"), part(call, "sampling")
        if sampling and isinstance(node, int) and 0 <= node < len(nodes):
            nodes[node].update({key: sampling[key] for key in _SAMPLING if sampling.get(key) is not None})


def take_lineage(trace: Json) -> Lineage | None:
    """The marks of a derived trace, in either design; its `task` becomes the innermost one, the outer `replay_task`,
    and it says its source's reward and step (decisions/replay#88)."""
    task = part(trace, "task")
    data = part(task, "data") if isinstance(task.get("data"), dict) else task
    if isinstance(data.get("source_task"), dict) and data.get("source_id"):
        outer = {key: value for key, value in data.items() if key != "source_task"}
        trace["replay_task"] = outer if data is task else {**task, "data": outer}
        trace["task"], depth = _innermost(data)
        trace |= _of_source(data)
        derivation = str(data.get("kind") or task.get("type") or "replay")
        return Lineage(derivation, _seed_kind(derivation), str(data["source_id"]), depth)
    named = _DERIVED_NAME.fullmatch(str(data.get("name")))
    if named is None or (named[3] and not _starts_from_an_answer(trace)):
        return None
    return Lineage(named[1] or named[3], SeedKind(named[1] or named[3]), named[2] or named[4])


def _of_source(task: Json) -> Json:
    """What a derived task says of its immediate source; null where nothing that can be."""
    reward, step = task.get("original_reward"), task.get("source_step")
    return {
        "source_reward": reward if is_reward(reward) else None,
        "source_step": step if is_natural(step) else None,
    }


def _innermost(task: Json) -> tuple[Json, int]:
    """The original task, and how many derivations lie between."""
    depth = 0
    while isinstance(task.get("source_task"), dict):
        task, depth = task["source_task"], depth + 1
    return task, depth


def _seed_kind(derivation: str) -> SeedKind | None:
    return next((kind for kind in (SeedKind.CONTINUE, SeedKind.RECHECK, SeedKind.JUDGE) if kind in derivation), None)


def _starts_from_an_answer(trace: Json) -> bool:
    """A recheck does; a name alone proves nothing (decisions/replay#24)."""
    for node in items(trace, "nodes"):
        if node.get("sampled"):
            return False
        if part(node, "message").get("role") == "assistant":
            return True
    return False
