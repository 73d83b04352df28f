"""Rollouts that didn't complete: aborted ones keep what was sampled, failed ones say why (design/groups#resolution).

Guarantees: a partial trajectory keeps its columns byte for byte; a failed one has `errors`, in the shape of the
verifiers v1 trace (type, message). Any exception becomes such an error, whatever its text is and does. Leaves out:
publishing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import orjson

from rolloutlog.contract.errors import InvalidRecord
from rolloutlog.contract.record.rollout import Rollout
from rolloutlog.contract.record.slot import Slot
from rolloutlog.contract.record.trajectory import Trajectory
from rolloutlog.contract.vocabulary import RejectReason, Status
from rolloutlog.contract.wire.json_text import write
from rolloutlog.contract.wire.refusal import refusing, text_of, type_name

ErrorFact = BaseException | str | Mapping[str, Any]
MAX_NESTED_ERRORS = 4
"""Errors of an exception group that its message lists."""


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
        return {"type": "Error", "message": text_of(error)}
    return {"type": type_name(error), "message": _message_of(error)}


def _message_of(error: BaseException) -> str:
    """An error's text; that of an exception group lists those in it, since its own names only their number."""
    if not isinstance(error, BaseExceptionGroup):
        return text_of(error)
    group = cast("BaseExceptionGroup[BaseException]", error)
    held = "; ".join(f"{type_name(one)}: {text_of(one)}" for one in group.exceptions[:MAX_NESTED_ERRORS])
    return text_of(f"{text_of(group)}: {held}")


def with_facts(partial: Trajectory | None, facts: Mapping[str, Any]) -> Trajectory:
    """The same columns, or none, with these facts in the record. Raises InvalidRecord where `partial` can't be one."""
    if partial is None:
        return Trajectory.build([], facts)
    if not isinstance(partial, Trajectory):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidRecord(RejectReason.SHAPE, f"{type_name(partial)} where a Trajectory belongs")
    with refusing():
        text = write({**partial.record, **facts}, orjson.OPT_SERIALIZE_NUMPY)
    return Trajectory(
        record_text=text,
        token_ids=partial.token_ids,
        logprobs=partial.logprobs,
        mask=partial.mask,
        segments=partial.segments,
        nodes=partial.nodes,
        columns=partial.columns,
    )
