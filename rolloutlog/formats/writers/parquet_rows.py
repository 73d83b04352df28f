"""Rollouts as rows of a Parquet table: one row each, list columns for tokens.

Guarantees: pandas, `datasets` and any other reader of Parquet read it. Leaves out: rebuilding a record from a row, for
which it has the record's JSON and the columns; and the file (`rolloutlog.consumers.exporting.parquet_file`).
"""

from __future__ import annotations

from typing import Any

import orjson

from rolloutlog.contract.record.trajectory import PARENT, SAMPLED, TOKENS
from rolloutlog.formats.writers.standing import StandingRollout


def schema(pa: Any) -> Any:
    """The schema of the file; `pa` is pyarrow."""
    text, integer, number, flag = pa.string(), pa.int64(), pa.float64(), pa.bool_()
    scalars = {
        "rollout": text, "group": text, "group_size": integer, "member": integer, "attempt": integer, "run": text,
        "trace": text, "env": text, "source": text, "depth": integer, "derivation": text,
        "source_reward": number, "source_step": integer,
        "kind": text, "status": text, "stop_condition": text,
        "reward": number, "advantage": number, "trained": flag, "step": integer, "dispatch_step": integer,
        "oldest_timeline": integer, "oldest_version": integer, "newest_timeline": integer, "newest_version": integer,
        "partition": integer, "offset": integer,
    }  # fmt: skip
    lists = {
        "token_ids": pa.int32(), "mask": pa.bool_(), "logprobs": pa.float32(), "node_parent": pa.int32(),
        "node_tokens": pa.int32(), "node_sampled": pa.int32(), "segment_timeline": pa.int32(),
        "segment_version": pa.int32(), "segment_offset": pa.int32(),
    }  # fmt: skip
    fields = [pa.field(name, kind) for name, kind in scalars.items()]
    fields += [pa.field(name, pa.list_(kind)) for name, kind in lists.items()]
    return pa.schema([*fields, pa.field("messages", text), pa.field("record", text)])


def row_of(standing: StandingRollout) -> dict[str, Any]:
    """The row of one rollout."""
    slot, trajectory = standing.rollout.slot, standing.rollout.trajectory
    oldest, newest = trajectory.policy_span or (None, None)
    return {
        "rollout": slot.rollout, "group": slot.group, "group_size": slot.group_size, "member": slot.member,
        "attempt": slot.attempt, "run": slot.run, "trace": slot.trace, "env": slot.env,
        "source": slot.source_id, "depth": slot.depth, "derivation": slot.derivation,
        "source_reward": trajectory.record.get("source_reward"), "source_step": trajectory.record.get("source_step"),
        "kind": slot.kind.value, "status": standing.rollout.status.value,
        "stop_condition": trajectory.record.get("stop_condition"), "reward": standing.reward,
        "advantage": standing.advantage, "trained": standing.is_trained, "step": standing.step,
        "dispatch_step": slot.dispatch_step,
        "oldest_timeline": oldest and oldest.timeline, "oldest_version": oldest and oldest.version,
        "newest_timeline": newest and newest.timeline, "newest_version": newest and newest.version,
        "partition": standing.event.partition, "offset": standing.event.offset,
        "token_ids": trajectory.token_ids, "mask": trajectory.mask.astype(bool), "logprobs": trajectory.logprobs,
        "node_parent": trajectory.nodes[:, PARENT], "node_tokens": trajectory.nodes[:, TOKENS],
        "node_sampled": trajectory.nodes[:, SAMPLED], "segment_timeline": trajectory.segments[:, 0],
        "segment_version": trajectory.segments[:, 1], "segment_offset": trajectory.segments[:, 2],
        "messages": orjson.dumps(trajectory.messages).decode(), "record": trajectory.record_text.decode(),
    }  # fmt: skip
