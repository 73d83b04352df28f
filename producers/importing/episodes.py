"""E4 and E5: a line is an episode of one or more traces (reference prime_verifiers 1.2 and 1.6).

Guarantees: the traces of an episode are one rollout, a forest with a table `agents`, whose main agent is the first that
may be trained; everything that an episode says beside its traces is kept in the record's `episode`. Leaves out: the
updates of E5 (`updates`).
"""

from __future__ import annotations

from typing import Any

from rolloutlog.contract.trajectory import Trajectory
from rolloutlog.contract.vocabulary import Grain, RunKind, Status
from rolloutlog.producers.importing.era import Era
from rolloutlog.producers.importing.foreign import Json, items, part
from rolloutlog.producers.importing.graph import Graph
from rolloutlog.producers.importing.recorded import Identity, Origin, Recorded, Span
from rolloutlog.producers.importing.trace import (
    reward_of,
    rounds_logprobs,
    say_sampling,
    status_of,
    take_lineage,
)

STREAM_MARKS = ("kind", "dispatch", "arrival")
"""What E5 writes into `info` as an episode passes; no part of what was sampled."""


def identify(line: Json, origin: Origin) -> Identity:
    """Which episode a line is. Raises KeyError, TypeError, ValueError where it isn't one."""
    run, task = part(line, "run"), part(line, "task")
    return Identity(
        traces=tuple(str(trace["id"]) for trace in items(line, "traces")) or (str(line["id"]),),
        run=run.get("id"),
        group=part(line, "group").get("id"),
        kind=RunKind(part(run, "work").get("type") or run.get("type") or RunKind.TRAIN),
        task=str(task.get("key") or task.get("hash") or ""),
        scope=run.get("id") or origin.scope,
    )


def read(line: Json, origin: Origin, era: Era) -> Recorded:
    """The episode as one rollout; the line's dicts become the record's. Raises Rejected."""
    identity = identify(line, origin)
    work, env = part(part(line, "run"), "work"), part(line, "env")
    policy = part(work, "policy")
    span = Span(policy["start"], policy["end"]) if policy else None
    traces: list[Json] = line.pop("traces")
    notes = origin.trained | _take_marks(traces)
    lineage = take_lineage(traces[0]) if traces else None
    trajectory, status = _forest(line, traces, span, notes)
    return Recorded(
        era=era,
        identity=identity,
        trajectory=trajectory,
        status=status,
        env=env.get("name") or env.get("id") or None,
        policy=span,
        dispatch_step=work.get("step"),
        step=origin.written_step,
        lineage=lineage,
        notes=notes,
    )


def _take_marks(traces: list[Json]) -> dict[str, Any]:
    """Take out of the traces' `info` what only a copy of them says, and return it as notes."""
    notes: dict[str, Any] = {}
    for trace in traces:
        info = part(trace, "info")
        notes |= {mark: info.pop(mark) for mark in STREAM_MARKS if mark in info}
        if "advantage" in info:
            advantage = info.pop("advantage")
            notes.setdefault("advantage", advantage)
            if len(traces) > 1:
                notes.setdefault("advantage_of", {})[str(trace["id"])] = advantage
    return notes


def _forest(line: Json, traces: list[Json], span: Span | None, notes: Json) -> tuple[Trajectory, Status]:
    """Columns of all traces, and how the episode ended. Late facts of their nodes go to `notes`."""
    graph, agents, statuses = Graph(), list[Json](), list[Status]()
    for index, trace in enumerate(traces):
        reward = reward_of(trace)
        statuses.append(status_of(trace, reward))
        say_sampling(trace)
        agents.append(_agent(trace, reward, graph.add(trace.pop("nodes"), index)))
        if trace.get("task") == line.get("task"):
            line.pop("task", None)
    notes |= graph.late
    rounds = any(rounds_logprobs(trace) for trace in traces)
    record = _record(line, traces, agents) | {"grain": Grain.NONE if span is None else Grain.EPISODE}
    good = bool(traces) and line.get("ok", True) and all(status is Status.COMPLETED for status in statuses)
    trajectory = graph.trajectory(record, span.start if span else None, rounds=rounds)
    return trajectory, Status.COMPLETED if good else Status.FAILED


def _agent(trace: Json, reward: float | None, root: int) -> Json:
    agent = part(trace, "agent")
    name, trainable = agent.get("name", "agent"), agent.get("trainable", True)
    return {"name": name, "trainable": trainable, "reward": reward, "root": root, "trace": trace["id"]}


def _record(line: Json, traces: list[Json], agents: list[Json]) -> Json:
    """The main trace's own facts, the table of agents with the others', and the episode's."""
    if not traces:
        return {"reward": None, "errors": line.get("errors"), "task": line.get("task"), "episode": line}
    main = next((index for index, agent in enumerate(agents) if agent["trainable"]), 0)
    for index, agent in enumerate(agents):
        if index != main:
            agent["record"] = traces[index]
    return {**traces[main], "reward": agents[main]["reward"], "agents": agents, "episode": line}
