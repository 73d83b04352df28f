"""What still needs the records of a partition, from which offset on, and why (design/log#seals).

Guarantees: pure; nothing at or above the lowest need of a place is deleted. Leaves out: finding the needs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from rolloutlog.contract.events.manifest_pinned import ManifestPin
from rolloutlog.contract.events.policy_versions import SavedCheckpoint
from rolloutlog.contract.events.watermarks import Watermarks, newest_live
from rolloutlog.contract.policies import History
from rolloutlog.contract.topics import Topic


class Need(NamedTuple):
    """Records of a topic's partition from `offset` on are needed, for that reason."""

    topic: Topic
    offset: int
    why: str


def lowest(needs: Iterable[Need], topic: Topic) -> Need:
    """The need that holds a topic, of some of which one speaks of it."""
    return min((need for need in needs if need.topic is topic), key=lambda need: need.offset)


def kept_marks(
    checkpoints: Iterable[SavedCheckpoint], closed: Iterable[Watermarks], history: History, keep: int
) -> Watermarks | None:
    """What a trainer may go back to: the oldest of the newest `keep` live checkpoints, else the last closed step.

    Of each partition the lowest marks of what is at or after it. None where no step left any.
    """
    live: list[Watermarks] = [marks for marks in checkpoints if history.is_live(marks.timeline, marks.step)]
    kept = sorted(live, key=lambda marks: (marks.step, marks.timeline))[-keep:]
    last = newest_live(closed, history)
    kept += [] if last is None else [last]
    if not kept:
        return None
    oldest = kept[0]
    sides = [marks for marks in kept if len(marks.partitions) == len(oldest.partitions)]
    partitions = tuple(
        min((marks.partitions[number] for marks in sides), key=lambda mark: mark.low)
        for number in range(len(oldest.partitions))
    )
    seeds = [min(marks.partitions[number].seeds for marks in sides) for number in range(len(partitions))]
    lowered = tuple(mark.model_copy(update={"seeds": low}) for mark, low in zip(partitions, seeds, strict=True))
    return Watermarks(timeline=oldest.timeline, step=oldest.step, partitions=lowered)


def trainer_needs(marks: Watermarks, partition: int) -> list[Need]:
    """What a trainer reads again that goes back there."""
    mark, place = marks.partitions[partition], f"step {marks.step} of timeline {marks.timeline}"
    of = "" if mark.first is None else f", where group {mark.first} is unresolved"
    return [
        Need(Topic.ROLLOUTS, mark.low, f"a trainer that goes on from {place}{of}"),
        Need(Topic.SEEDS, mark.seeds, f"groups that hadn't ended at {place}"),
    ]


def pinned_needs(pins: Sequence[ManifestPin], partition: int) -> list[Need]:
    """What frozen buffers read."""
    return [
        Need(Topic.ROLLOUTS, pin.lowest[partition], f"the manifest {pin.manifest[:16]}")
        for pin in pins
        if partition in pin.lowest
    ]
