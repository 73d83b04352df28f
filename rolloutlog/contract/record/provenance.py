"""The headers of a rollout that follow from its value, so that the two can't drift apart (design/log#provenance).

Guarantees: producers write exactly what `derived` returns, and readers refuse a record whose headers say otherwise.
Leaves out: headers that only the producer knows (`slot`).
"""

from __future__ import annotations

from typing import Any

from rolloutlog.contract.record import graph
from rolloutlog.contract.record.slot import Slot
from rolloutlog.contract.record.trajectory import Trajectory
from rolloutlog.contract.vocabulary import EventType, Grain, Status
from rolloutlog.contract.wire.headers import FIELDS, Headers

TYPE_OF = {
    Status.COMPLETED: EventType.ROLLOUT_COMPLETED,
    Status.ABORTED: EventType.ROLLOUT_ABORTED,
    Status.FAILED: EventType.ROLLOUT_FAILED,
}
STATUS_OF = {event_type: status for status, event_type in TYPE_OF.items()}


def derived(slot: Slot, status: Status, trajectory: Trajectory, digest: str) -> dict[str, Any]:
    """Header values, by attribute name of the table, that follow from slot, status and value.

    Raises ValueError or TypeError where the record is malformed; `validation` looks at it first.
    """
    return {"rollout": slot.rollout, **of_value(status, trajectory, digest)}


def of_value(status: Status, trajectory: Trajectory, digest: str) -> dict[str, Any]:
    """Header values that follow from status and value alone. Raises as `derived` does."""
    record = trajectory.record
    span = trajectory.policy_span
    return {
        "status": status,
        "stop_condition": record.get("stop_condition") or None,
        "oldest_policy": span and span[0],
        "newest_policy": span and span[1],
        "grain": record.get("grain", Grain.TOKEN if span else None),
        "reward": trajectory.reward,
        "tokens": len(trajectory.token_ids),
        "turns": sum(trajectory.sampled_nodes),
        "branches": graph.leaf_count(trajectory.parents),
        "digest": digest,
    }


def disagreement(headers: Headers, expected: dict[str, Any]) -> str | None:
    """The first header that is there and says something else than the value; None if all agree. Raises HeaderError."""
    given = headers.raw.get
    for name, value in expected.items():
        field = FIELDS[name]
        raw = given(field.name)
        if raw is not None and (said := field.read(raw)) != value:
            return f"header {field.name} says {said}, the value says {value}"
    return None
