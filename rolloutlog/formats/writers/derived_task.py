"""The task of a derived rollout as replay environments write it, around the innermost one (decisions/replay#23, #85).

Guarantees: what was read so is written as it was; one that was derived here is known for derived by its line alone, and
who reads it back finds source, reward and step. Leaves out: the depth, and whatever else a stamp says (`stamping`).
"""

from __future__ import annotations

from typing import Any, cast

from rolloutlog.formats.writers.node_columns import Json
from rolloutlog.formats.writers.standing import StandingRollout

OF_DERIVED = frozenset({"replay_task", "source_reward", "source_step"})
"""Keys of a record that its task says in these layouts."""


def replay_task(standing: StandingRollout) -> Json | None:
    """What stands around the innermost task; None for a rollout that isn't derived, or doesn't say of what."""
    record, slot = standing.rollout.trajectory.record, standing.rollout.slot
    if (outer := recorded_replay_task(record)) is not None:
        return outer
    if slot.derivation is None or slot.source_id is None or "source_reward" not in record:
        return None
    return {
        "kind": slot.derivation,
        "source_id": slot.source_id,
        "original_reward": record["source_reward"],
        "source_step": record.get("source_step"),
    }


def recorded_replay_task(record: Json) -> Json | None:
    """What stood around the innermost task where the record was read from."""
    outer: Any = record.get("replay_task")
    return cast("Json", outer) if isinstance(outer, dict) else None
