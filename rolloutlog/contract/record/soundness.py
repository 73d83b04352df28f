"""Soundness of a trajectory: whether its columns and its record belong together (design/record#validation).

Guarantees: `check_trajectory` looks at everything that later code relies on, so that inside no length, parent,
segment or type is tested again. Leaves out: headers (`validation`), and whether a policy was ever published.
"""

from __future__ import annotations

from typing import Any, NamedTuple, cast

import numpy as np

from rolloutlog.contract.numbers import REWARD, is_natural, is_reward
from rolloutlog.contract.record.graph import NO_PARENT
from rolloutlog.contract.record.segments import bad_segments
from rolloutlog.contract.record.trajectory import AGENT, NODE_COLUMNS, SAMPLED, Trajectory
from rolloutlog.contract.record.value import ALIGNMENTS
from rolloutlog.contract.vocabulary import Grain, RejectReason
from rolloutlog.contract.wire.rejection import Rejected

Table = list[list[int]]

ROUNDING = 1e-3
"""How far a log-prob may lie above 0: float32 rounds logits in the thousands, from which it is the difference, so
coarsely (0.0005 at 8,192); a probability that was taken for its logarithm is hundreds of times further off."""


def check_trajectory(trajectory: Trajectory) -> None:
    """Columns and record of one attempt. Raises Rejected."""
    table = cast("Table", trajectory.nodes.tolist())
    _check_lengths(trajectory, table)
    _check_nodes(trajectory, table)
    _check_numbers(trajectory)
    check_record(trajectory, table)
    if trajectory.columns:
        _check_columns(trajectory)


def _check_lengths(trajectory: Trajectory, table: Table) -> None:
    """The totals that the nodes count are those of the columns."""
    totals = [sum(column) for column in zip(*table, strict=True)] or [0] * NODE_COLUMNS
    _, tokens, sampled, segments, _ = totals
    ids, mask, logprobs = len(trajectory.token_ids), len(trajectory.mask), len(trajectory.logprobs)
    if not tokens == ids == mask:
        raise Rejected(RejectReason.LENGTHS, f"{ids} token_ids, mask of {mask}, nodes of {tokens} tokens")
    if sampled != logprobs:
        raise Rejected(RejectReason.LENGTHS, f"{logprobs} log-probs, nodes of {sampled} sampled tokens")
    if segments != len(trajectory.segments):
        raise Rejected(RejectReason.SEGMENTS, f"{len(trajectory.segments)} segments, nodes of {segments}")


def _check_nodes(trajectory: Trajectory, table: Table) -> None:
    """Each node by itself: its parent, the trues of its mask, and its segments (none at all: no policy is known)."""
    mask, segments = trajectory.mask.tobytes(), cast("list[list[int]]", trajectory.segments.tolist())
    if mask.translate(None, b"\0\1"):
        raise Rejected(RejectReason.SHAPE, "mask holds something else than 0 and 1")
    token = segment = 0
    for node, (parent, tokens, sampled, runs, agent) in enumerate(table):
        if tokens < 0 or sampled < 0 or runs < 0 or agent < 0:
            raise Rejected(RejectReason.LENGTHS, f"node {node} has a negative count")
        if not NO_PARENT <= parent < node:
            raise Rejected(RejectReason.PARENT, f"node {node} has parent {parent}")
        if (trues := mask.count(1, token, token + tokens)) != sampled:
            raise Rejected(RejectReason.LENGTHS, f"node {node} counts {sampled} sampled tokens, its mask {trues}")
        if segments and (said := bad_segments(segments[segment : segment + runs], sampled)) is not None:
            raise Rejected(RejectReason.SEGMENTS, f"node {node}: {said}")
        token, segment = token + tokens, segment + runs


def _check_numbers(trajectory: Trajectory) -> None:
    """Token ids and log-probs are what an engine can say: the least and the greatest tell. `argmin` and `argmax` find
    those, or the first NaN, in two thirds of the time that `min` and `max` take."""
    ids, logprobs = trajectory.token_ids, trajectory.logprobs
    if len(ids) and ids[ids.argmin()] < 0:
        raise Rejected(RejectReason.TOKEN_IDS, f"token id {ids.min()} is below 0")
    if len(logprobs) and not (logprobs[logprobs.argmax()] <= ROUNDING and logprobs[logprobs.argmin()] > -np.inf):
        bad = logprobs[~(np.isfinite(logprobs) & (logprobs <= ROUNDING))]
        raise Rejected(RejectReason.LOGPROBS, f"a log-prob is a finite number up to 0, not {bad[0]}")


def _check_columns(trajectory: Trajectory) -> None:
    """Optional columns are as long as the axis that they name, and their numbers finite, as all that can be JSON."""
    axes = {"token": len(trajectory.token_ids), "sampled": len(trajectory.logprobs)}
    for name, column in trajectory.columns.items():
        if column.alignment not in ALIGNMENTS:
            raise Rejected(RejectReason.SHAPE, f"column {name} has alignment {column.alignment!r}")
        if column.alignment in axes and (not column.array.ndim or len(column.array) != axes[column.alignment]):
            raise Rejected(RejectReason.LENGTHS, f"column {name} isn't parallel to the {column.alignment} axis")
        if column.array.dtype.kind == "f" and not np.isfinite(column.array).all():
            raise Rejected(RejectReason.SHAPE, f"column {name} holds a number that isn't finite")
    own = trajectory.columns.get("loss_mask")
    if own is not None and (own.alignment not in axes or own.array.ndim != 1):
        raise Rejected(RejectReason.SHAPE, "column loss_mask is one number per token or per sampled token")


def check_record(trajectory: Trajectory, table: Table) -> None:
    """The record beside the table of nodes, whose columns were looked at. Raises Rejected."""
    record: Any = trajectory.record
    facts = cast("dict[str, Any]", record) if isinstance(record, dict) else {}
    nodes: Any = facts.get("nodes")
    if not isinstance(nodes, list) or len(cast("list[Any]", nodes)) != len(table):
        raise Rejected(RejectReason.SHAPE, f"the record needs `nodes`, a list of {len(table)} objects")
    if (said := _bad_fact(facts)) is not None:
        raise Rejected(RejectReason.SHAPE, said)
    agents = len(facts.get("agents") or [None])
    for i, (node, row) in enumerate(zip(cast("list[Any]", nodes), table, strict=True)):
        if row[AGENT] >= agents:
            raise Rejected(RejectReason.SHAPE, f"node {i} names agent {row[AGENT]} of {agents}")
        if (said := _bad_node(node, row[SAMPLED])) is not None:
            raise Rejected(RejectReason.SHAPE, f"node {i}: {said}")


class Fact(NamedTuple):
    """What a record may say under one key: the JSON type, and what it means."""

    kind: type
    meaning: str


FACTS: dict[str, Fact] = {
    "nodes": Fact(list, "an object per row of the column `nodes`, in order; required"),
    "reward": Fact(float, f"{REWARD}; absent: pending"),
    "stop_condition": Fact(str, "why generation stopped"),
    "grain": Fact(str, "how finely policies are known: token, episode or none"),
    "agents": Fact(list, "an object per agent of the episode: name, trainable, reward, root"),
    "task": Fact(dict, "the task, as the environment gave it"),
    "errors": Fact(list, "what went wrong; a rollout with errors is no source of a derived one"),
    "source_reward": Fact(float, f"of a derived rollout, its source's as it was drawn: {REWARD}"),
    "source_step": Fact(int, "of a derived rollout, the train step in whose window its source was made"),
    "info": Fact(dict, "anything else"),
}
"""Facts that readers look at; a record may say more."""


_GRAINS = (None, *Grain)
_REWARDS = ("reward", "source_reward")
_KINDS = {name: kind for name, (kind, _) in FACTS.items() if name not in _REWARDS}


def _bad_fact(record: dict[str, Any]) -> str | None:
    for name in _REWARDS:
        if not is_reward(record.get(name)):
            return f"`{name}` is {REWARD}"
    for name, said in record.items():
        if said is not None and name in _KINDS and not isinstance(said, _KINDS[name]):
            return f"`{name}` isn't a {_KINDS[name].__name__}"
    if record.get("source_step") is not None and not is_natural(record["source_step"]):
        return "`source_step` isn't a natural number"
    for agent in cast("list[Any]", record.get("agents") or ()):
        if not isinstance(agent, dict) or not is_reward(cast("dict[str, Any]", agent).get("reward")):
            return f"`agents` holds objects, whose `reward` is {REWARD}"
    if record.get("grain") not in _GRAINS:
        return "`grain` is token, episode or none"
    return None


def _bad_node(node: Any, sampled: int) -> str | None:
    if not isinstance(node, dict):
        return "isn't an object"
    facts = cast("dict[str, Any]", node)
    if sampled and facts.get("sampled") is not True:
        return "has sampled tokens, but isn't `sampled`"
    message: Any = facts.get("message")
    if message is not None and not (isinstance(message, dict) and isinstance(cast("Any", message).get("role"), str)):
        return "`message` is null or an object with a `role`"
    return None
