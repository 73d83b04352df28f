"""Up to where the topics of a run are done with, as a trainer's steps leave it (design/trainer#watermarks).

Guarantees: pure; the newest live watermarks are those of the last step on the current timeline's path, whatever
timelines were abandoned. Leaves out: making them, which is the trainer's, and reading them off
the log (`rolloutlog.kafka.live_watermarks`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from pydantic import BaseModel, ConfigDict, Field

from rolloutlog.contract.numbers import Counted
from rolloutlog.contract.policies import History, PolicyNumber

W = TypeVar("W", bound="Watermarks")


class PartitionMarks(BaseModel):
    """One partition number of the three topics. On `rollouts` nothing below `low` is unresolved, and `first` is the
    group whose first record lies there, None where none is open; on `seeds` every group whose origin seed lies below
    `seeds` has ended; on `group-events` a start needs nothing below `events` but chunks, from `oldest_chunk` to
    `chunk`, and it reached to `end` at least."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    low: Counted
    seeds: Counted
    events: Counted
    end: Counted = 0
    chunk: Counted | None = None
    oldest_chunk: Counted | None = None
    first: str | None = None


class Watermarks(BaseModel):
    """What a start needs after step `step` of `timeline`; `partitions` by number. `groups` counts those that aren't
    trained or dropped by how they stand, for people. All is of the pass of that number."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    timeline: PolicyNumber
    step: Counted
    partitions: tuple[PartitionMarks, ...] = Field(min_length=1)
    groups: dict[str, Counted] = Field(default_factory=dict[str, int])
    pass_number: Counted = 1


def newest_live(known: Iterable[W], history: History) -> W | None:
    """Those of the last live step; None where no step left any. Steps only grow along the path, and a resume closes the
    step that it goes on from once more."""
    live = (marks for marks in known if history.is_live(marks.timeline, marks.step))
    return max(live, key=lambda marks: (marks.step, marks.timeline), default=None)
