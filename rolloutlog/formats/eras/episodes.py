"""E4 and E5: a line is an episode of one or more traces (design/eras#episodes).

Guarantees: the traces of an episode are one rollout, a forest with a table `agents`, whose main agent is the first that
may be trained; everything that an episode says beside its traces is kept in the record's `episode`. Leaves out: the
updates of E5 (`rolloutlog.producers.importing.parsing.updates`).
"""

from __future__ import annotations

from msgspec import UnsetType

from rolloutlog.contract.record.trajectory import Trajectory
from rolloutlog.contract.vocabulary import Grain, RunKind, Status
from rolloutlog.formats.eras.message_graph import Graph
from rolloutlog.formats.eras.prompts import trace_prompt
from rolloutlog.formats.eras.trace import (
    add_sampling,
    agent_of,
    is_scored,
    reward_of,
    rounds_logprobs,
    status_of,
    take_advantage,
    take_lineage,
)
from rolloutlog.formats.foreign.glance import Env, Glance, GroupGlance, RunGlance, VersionSpan, task_key, trace_ids
from rolloutlog.formats.foreign.json_parts import Json, part
from rolloutlog.formats.foreign.recorded import Origin, RecordedRollout, TraceIdentity

STREAM_MARKS = ("kind", "dispatch", "arrival")
"""What E5 writes into `info` as an episode passes; no part of what was sampled."""


def identify(glance: Glance, origin: Origin) -> TraceIdentity:
    """Whose an episode is. Raises ValueError for a kind that is neither train nor eval."""
    run = glance.run or RunGlance()
    group = glance.group.id if isinstance(glance.group, GroupGlance) else glance.group
    return TraceIdentity(
        traces=trace_ids(glance),
        run=run.id,
        group=group,
        kind=RunKind(run.work.type or run.type or RunKind.TRAIN),
        env=_env(glance, origin),
        task=task_key(glance),
        prompt="" if group else trace_prompt(glance),
        scope=run.id,
        group_size=origin.group_size,
        scored=isinstance(glance.traces, UnsetType) or any(is_scored(trace.rewards) for trace in glance.traces),
    )


def read(line: Json, glance: Glance, origin: Origin) -> RecordedRollout:
    """The episode as one rollout. Raises Rejected."""
    work = (glance.run or RunGlance()).work
    traces: list[Json] = line.pop("traces")
    notes = origin.trained | _take_marks(traces)
    lineage = take_lineage(traces[0]) if traces else None
    trajectory, status = _forest(line, traces, work.policy, notes)
    return RecordedRollout(
        trajectory=trajectory,
        status=status,
        env=_env(glance, origin),
        policy=work.policy,
        dispatch_step=work.step,
        step=_arrival_step(notes, origin),
        lineage=lineage,
        notes=notes,
    )


def _env(glance: Glance, origin: Origin) -> str | None:
    env = glance.env if isinstance(glance.env, Env) else Env()
    return origin.env_of(env.name, env.id)


def _arrival_step(notes: Json, origin: Origin) -> int | None:
    step = part(notes, "arrival").get("step")
    return step if isinstance(step, int) else origin.written_step


def _take_marks(traces: list[Json]) -> Json:
    """Take out of the traces' `info` what only a copy of them says, and return it as notes."""
    notes: Json = {}
    for trace in traces:
        info = part(trace, "info")
        notes |= {mark: info.pop(mark) for mark in STREAM_MARKS if mark in info}
        for advantage in take_advantage(trace).values():
            notes.setdefault("advantage", advantage)
            if len(traces) > 1:
                notes.setdefault("advantage_of", {})[str(trace["id"])] = advantage
    return notes


def _forest(line: Json, traces: list[Json], span: VersionSpan | None, notes: Json) -> tuple[Trajectory, Status]:
    """Columns of all traces, and how the episode ended. Late facts of their nodes go to `notes`."""
    graph, agents, statuses = Graph(span.start if span else None), list[Json](), list[Status]()
    for index, trace in enumerate(traces):
        reward = reward_of(trace.get("rewards"))
        statuses.append(status_of(trace))
        add_sampling(trace)
        agents.append(agent_of(trace, reward, graph.add(trace.pop("nodes"), index)))
        if trace.get("task") == line.get("task"):
            line.pop("task", None)
    notes |= graph.late
    rounds = any(rounds_logprobs(trace) for trace in traces)
    record = _record(line, traces, agents)
    record["grain"] = Grain.NONE if span is None else Grain.EPISODE
    good = bool(traces) and line.get("ok", True) and all(status is Status.COMPLETED for status in statuses)
    trajectory = graph.trajectory(record, rounds=rounds)
    return trajectory, Status.COMPLETED if good else Status.FAILED


def _record(line: Json, traces: list[Json], agents: list[Json]) -> Json:
    """The main trace's own facts, the table of agents with the others', and the episode's."""
    if not traces:
        return {"reward": None, "errors": line.get("errors"), "task": line.get("task"), "episode": line}
    main = next((index for index, agent in enumerate(agents) if agent["trainable"]), 0)
    for index, agent in enumerate(agents):
        if index != main:
            agent["record"] = traces[index]
    return {**traces[main], "reward": agents[main]["reward"], "agents": agents, "episode": line}
