"""Rollouts that didn't complete: aborted ones keep what was sampled, failed ones say why (design 3 and 8).

Guarantees: a partial trajectory keeps its columns byte for byte; a failed one has `errors`, in the shape of the
verifiers v1 trace (type, message). Leaves out: publishing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from rolloutlog.contract.rollout import Rollout
from rolloutlog.contract.slot import Slot
from rolloutlog.contract.trajectory import Trajectory
from rolloutlog.contract.vocabulary import Status

ErrorFact = BaseException | str | Mapping[str, Any]
MESSAGE_LIMIT = 4000
"""A message that holds a whole prompt or a page of HTML says nothing more at its end."""


def aborted(slot: Slot, partial: Trajectory | None = None) -> Rollout:
    """The attempt was given up and may be gone on with: its member stays open, `partial` is the prefix to resume."""
    return Rollout(slot, with_facts(partial, {"stop_condition": "aborted"}), Status.ABORTED)


def failed(slot: Slot, error: ErrorFact, partial: Trajectory | None = None) -> Rollout:
    """The attempt broke: its member ends as failed, so its group can end."""
    return Rollout(slot, with_facts(partial, {"stop_condition": "error", "errors": [error_fact(error)]}), Status.FAILED)


def error_fact(error: ErrorFact) -> dict[str, Any]:
    """An entry of `errors`."""
    if isinstance(error, Mapping):
        return dict(error)
    if isinstance(error, str):
        return {"type": "Error", "message": error[:MESSAGE_LIMIT]}
    return {"type": type(error).__name__, "message": str(error)[:MESSAGE_LIMIT]}


def with_facts(partial: Trajectory | None, facts: Mapping[str, Any]) -> Trajectory:
    """The same columns, or none, with these facts in the record."""
    if partial is None:
        return Trajectory.build([], facts)
    return Trajectory(
        record_text=orjson.dumps({**partial.record, **facts}),
        token_ids=partial.token_ids,
        logprobs=partial.logprobs,
        mask=partial.mask,
        segments=partial.segments,
        nodes=partial.nodes,
        columns=partial.columns,
    )
