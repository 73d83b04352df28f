"""What a sound record is fit for as a source: where it could be resumed, or why it can't be (decisions/replay#21).

Guarantees: total: whatever the JSON of the record makes a derivation raise is a fault of that derivation on this
record, told once, with its row, and no other derivation's; what it offers can be written into a seed again. Leaves out:
settings (`selection`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import orjson

from rolloutlog.buffer.derivations.anchor_type import AnchorType
from rolloutlog.buffer.derivations.catalogue import OWN
from rolloutlog.buffer.derivations.chat_shape import check_chat
from rolloutlog.buffer.derivations.protocol import AnchorPoint, type_name
from rolloutlog.buffer.derivations.snapshots import snapshots_of
from rolloutlog.buffer.index.packed_anchors import pack
from rolloutlog.buffer.index.skip import Skip
from rolloutlog.buffer.sources.selection import needs_container, unfit
from rolloutlog.contract.record.rollout import Rollout
from rolloutlog.contract.record.trajectory import Trajectory
from rolloutlog.contract.wire.rejection import HOSTILE, fault_of

MAX_ANCHORS = 512
"""Anchors of one kind in a rollout's row, the newest: with its texts it stays below the least limit of a topic."""
ALL = ""
"""In `faults`: whatever the derivation."""


class Eligibility(NamedTuple):
    """`unfit` says why it is no source, whatever the settings; `faults` what made each derivation fail on it, by its
    type; `packed` are the anchors as they lie in its row, `snapshots` their nodes of which the state was kept, None
    where that of no node was."""

    unfit: Skip | None = None
    container: bool = False
    packed: bytes = b""
    snapshots: tuple[int, ...] | None = None
    faults: Mapping[str, str] = {}


def eligibility_of(rollout: Rollout, types: Sequence[AnchorType] = OWN) -> Eligibility:
    """Judge a checked rollout, as a source of derivations of those types."""
    try:
        return _judged(rollout, types)
    except HOSTILE as error:
        return Eligibility(Skip.REJECTED, faults={ALL: fault_of(error)})


def _judged(rollout: Rollout, types: Sequence[AnchorType]) -> Eligibility:
    trajectory = rollout.trajectory
    container = needs_container(trajectory.record)
    if (skip := unfit(rollout)) is not None:
        return Eligibility(skip, container)
    check_chat(trajectory)
    refs = snapshots_of(trajectory)
    anchors, faults = _anchors(trajectory, types)
    if anchors:
        _check_writable(trajectory)
    kept = tuple(sorted({anchor.node for anchor in anchors} & refs.keys())) if refs else None
    return Eligibility(None, container, pack(anchors), kept, faults)


def _anchors(trajectory: Trajectory, types: Sequence[AnchorType]) -> tuple[list[AnchorPoint], dict[str, str]]:
    """Anchors of each type, of each kind the newest, and what made a type fail."""
    found: dict[str, deque[AnchorPoint]] = {}
    faults: dict[str, str] = {}
    for each in types:
        try:
            for point in each.anchors(trajectory):
                if (points := found.get(point.kind)) is None:
                    points = found[str(point.kind)] = deque(maxlen=MAX_ANCHORS)
                points.append(point)
        except MemoryError:
            raise  # of this process, not of the record: the next owner may have more
        except Exception as error:  # noqa: BLE001 - a hook may be anybody's, and raise what it likes
            faults[type_name(each.kind)] = fault_of(error)
    anchors = [point for points in found.values() for point in points]
    for each in types:
        if not each.tried:
            continue
        try:
            each.check(anchors, trajectory.reward)
        except MemoryError:
            raise
        except Exception as error:  # noqa: BLE001
            faults.setdefault(type_name(each.kind), fault_of(error))
    return anchors, faults


def _check_writable(trajectory: Trajectory) -> None:
    """What a seed takes over can be JSON again: more can be read than written, such as 1,024 levels against 254."""
    try:
        orjson.dumps({"task": trajectory.record.get("task"), "messages": trajectory.messages})
    except TypeError as error:
        raise ValueError(f"task and messages can't be written again: {error}") from error
