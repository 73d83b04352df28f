"""What a sound record is fit for as a source: where it could be resumed, or why it can't be (decisions/replay#21).

Guarantees: total: whatever the JSON of the record makes a derivation raise is a `fault` of this record, told once, with
its row; what it offers can be written into a seed again. Leaves out: settings (`selection`).
"""

from __future__ import annotations

from dataclasses import dataclass

import orjson

from rolloutlog.buffer.derivations.catalogue import all_anchors
from rolloutlog.buffer.derivations.chat_shape import check_chat
from rolloutlog.buffer.index.packed_anchors import pack
from rolloutlog.buffer.index.skip import Skip
from rolloutlog.buffer.sources.selection import needs_container, unfit
from rolloutlog.contract.record.rollout import Rollout
from rolloutlog.contract.record.trajectory import Trajectory
from rolloutlog.contract.wire.rejection import HOSTILE, fault_of

MAX_ANCHORS = 2048
"""Anchors in a rollout's row: with its texts it stays below the least limit that a topic may have."""


@dataclass(slots=True, frozen=True)
class Eligibility:
    """`unfit` says why it is no source, whatever the settings; `fault` what made a derivation fail on it; `packed` are
    the anchors as they lie in its row."""

    unfit: Skip | None = None
    container: bool = False
    packed: bytes = b""
    fault: str | None = None


def eligibility_of(rollout: Rollout) -> Eligibility:
    """Judge a checked rollout."""
    try:
        return _judged(rollout)
    except HOSTILE as error:
        return Eligibility(Skip.REJECTED, fault=fault_of(error))


def _judged(rollout: Rollout) -> Eligibility:
    trajectory = rollout.trajectory
    container = needs_container(trajectory.record)
    if (skip := unfit(rollout)) is not None:
        return Eligibility(skip, container)
    check_chat(trajectory)
    anchors = all_anchors(trajectory)[-MAX_ANCHORS:]
    if anchors:
        _check_writable(trajectory)
    return Eligibility(None, container, pack(anchors))


def _check_writable(trajectory: Trajectory) -> None:
    """What a seed takes over can be JSON again: more can be read than written, such as 1,024 levels against 254."""
    try:
        orjson.dumps({"task": trajectory.record.get("task"), "messages": trajectory.messages})
    except TypeError as error:
        raise ValueError(f"task and messages can't be written again: {error}") from error
