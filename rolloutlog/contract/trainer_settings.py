"""The trainer's settings: how old a token may be, what a step consumes, whom it waits for (design/trainer#settings).

Guarantees: a combination that can't work, would never do anything, or that this build doesn't act on is refused when it
is read (design/log#settings); `digest` names what decides which groups are trained, which a final event repeats. Leaves
out: the settings that a run agrees on (`settings`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import orjson
from pydantic import Field, model_validator

from rolloutlog.contract.ids import id_of
from rolloutlog.contract.section import LONGEST_S, MOST, MOST_BYTES, Section

OWN = ("buffer_bytes", "buffer_groups", "starve_s")
"""Of each process alone: they change nothing that is trained."""


class Wait(Section):
    """Wait for every member."""

    type: Literal["wait"] = "wait"
    """The policy."""


class Deadline(Section):
    """Go on without the missing ones once `seconds` passed on the partition and at least `k` members are there."""

    type: Literal["deadline"] = "deadline"
    """The policy."""
    seconds: float = Field(gt=0, le=LONGEST_S)
    """Time since the group's first record, on the broker's clock, however wrong a worker's or the trainer's own is."""
    k: int = Field(default=2, ge=1, le=MOST)
    """Members that must be there."""


class OverProvision(Section):
    """Dispatch `group_size`, train the first `group_train`; the rest are surplus. Refused: this build does it
    wherever a group says `group_train`, and nothing else."""

    type: Literal["over-provision"] = "over-provision"
    """The policy."""


Straggler = Annotated[Wait | Deadline | OverProvision, Field(discriminator="type")]
OnExpire = Literal["reroll-members", "reroll-group", "drop-group", "keep-as-baseline"]


class Staleness(Section):
    """How old a token may be when it is trained (design/staleness#thresholds)."""

    max_staleness: int | None = Field(default=1, ge=0, le=MOST)
    """Sync periods by which the oldest sampled token may lag; unset: no limit."""
    max_token_staleness: int | None = Field(default=None, ge=0, le=MOST)
    """Sync periods after which a single token leaves the loss, below `max_staleness` and with `on_expire` set; unset:
    masking is off."""
    on_expire: OnExpire | None = None
    """Unset: reroll-members for groups with a seed, drop-group without."""
    on_unknown: Literal["exempt", "drop"] | None = None
    """Tokens of unknown policy; unset: exempt offline and on imported policies, drop live."""
    abandoned: Literal["from-fork", "drop"] = "from-fork"
    """Tokens of a timeline that a resume left behind."""

    @model_validator(mode="after")
    def _can_mask(self) -> Staleness:
        if self.max_token_staleness is not None:
            if self.max_staleness is not None and self.max_token_staleness >= self.max_staleness:
                raise ValueError(
                    f"max_token_staleness {self.max_token_staleness} never masks anything unless it is below "
                    f"max_staleness {self.max_staleness}"
                )
            if self.on_expire is None:
                raise ValueError(
                    "with max_token_staleness a member can lose all its tokens: set on_expire to reroll-members, "
                    "reroll-group, drop-group or keep-as-baseline"
                )
        return self


class TrainerSettings(Section):
    """The trainer's side of the log (design/trainer#stream)."""

    batch_groups: int = Field(default=8, ge=1, le=MOST)
    """B: groups a train step consumes."""
    sync_period: int = Field(default=1, ge=1, le=MOST)
    """W: train steps between two weight publications."""
    staleness: Staleness = Field(default_factory=Staleness)
    """How old a token may be."""
    straggler: Straggler = Field(default_factory=Wait)
    """What to do about members that come late, by its `type`."""
    order: Literal["oldest", "arrival"] = "oldest"
    """Which whole group is drawn first."""
    min_survivors: int = Field(default=2, ge=1, le=MOST)
    """Members with a reward that a group needs to be trained."""
    drop_zero_variance: bool = True
    """Drop groups whose rewards are all equal."""
    max_passes: int = Field(default=1, ge=1, le=MOST)
    """How often a group may be trained; more than once is refused, as this build doesn't."""
    overcommit: bool = False
    """Allow more open groups than the staleness bound proves safe."""
    max_open: int | None = Field(default=None, ge=1, le=MOST)
    """Open groups at most; unset: B (n W + 1)."""
    buffer_bytes: int = Field(default=1 << 30, ge=1 << 20, le=MOST_BYTES)
    """Payload bytes of pending groups before partitions are paused."""
    buffer_groups: int = Field(default=4096, ge=1, le=MOST)
    """Pending groups before partitions are paused."""
    starve_s: float = Field(default=300.0, gt=0, le=LONGEST_S)
    """Without progress for so long, the trainer stops and says who is late."""

    @property
    def open_bound(self) -> int | None:
        """B (n W + 1) groups may be open so that none expires (design/staleness#open-groups); None without a staleness
        limit."""
        n = self.staleness.max_staleness
        return None if n is None else self.batch_groups * (n * self.sync_period + 1)

    @property
    def open_groups(self) -> int:
        """Open groups at most: the setting, else the bound, else 4 batches."""
        return self.max_open or self.open_bound or 4 * self.batch_groups

    def recorded(self) -> dict[str, Any]:
        """What decides which groups are trained, and how many may be open: the trainer says it on `run` when it starts.
        What is left out is each process's own."""
        return self.model_dump(mode="json", exclude={*OWN})

    @property
    def digest(self) -> str:
        """Id of `recorded`; every final event names the one that it was judged by."""
        return trainer_digest(self.recorded())

    @classmethod
    def of_record(cls, recorded: Mapping[str, Any]) -> TrainerSettings:
        """The settings that somebody recorded. Raises ValueError for what this version doesn't know."""
        batch: Any = recorded.get("batch_groups", 0)
        room = max(batch if isinstance(batch, int) else 0, cls.model_fields["buffer_groups"].default)
        return cls.model_validate({"buffer_groups": room} | dict(recorded))

    @model_validator(mode="after")
    def _acted_on(self) -> TrainerSettings:
        if self.max_passes != 1:
            raise ValueError(f"max_passes {self.max_passes}: this build trains each group once")
        if isinstance(self.straggler, OverProvision):
            raise ValueError(
                "straggler over-provision does nothing in this build that wait doesn't: a group that says group_train "
                "is trained once so many members are complete"
            )
        return self

    @model_validator(mode="after")
    def _bounds(self) -> TrainerSettings:
        if self.buffer_groups < self.batch_groups:
            raise ValueError(f"buffer_groups {self.buffer_groups} is below a batch of {self.batch_groups} groups")
        bound = self.open_bound
        if self.max_open is not None and bound is not None and self.max_open > bound and not self.overcommit:
            raise ValueError(
                f"max_open {self.max_open} is above B (n W + 1) = {bound}: groups would expire; set overcommit"
            )
        if self.max_open is not None and self.max_open < self.batch_groups:
            raise ValueError(f"max_open {self.max_open} is below a batch of {self.batch_groups} groups")
        return self

    def derived_open(self, shards: int) -> int:
        """The derived part of `open_groups`, dealt to the shards: a quarter of what exceeds B, but one a shard where
        that much exceeds it, for a shard with none would never derive."""
        spare = max(0, self.open_groups - self.batch_groups)
        return min(spare, max(spare // 4, shards))


def trainer_digest(recorded: Any) -> str:
    """Id of the text of a trainer's settings."""
    return id_of("trainer-settings", orjson.dumps(recorded, option=orjson.OPT_SORT_KEYS).decode())
