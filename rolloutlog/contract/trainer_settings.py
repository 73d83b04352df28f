"""The trainer's settings as a whole: what a step consumes, and what goes together (design/trainer#settings).

Guarantees: a combination that can't work, would never do anything, or that this build doesn't act on is refused when it
is read (design/log#settings); `digest` names what decides which groups are trained, which a final event repeats. Leaves
out: what each part means (`staleness_settings`, `dispatch_settings`), and what a run agrees on (`settings`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson
from pydantic import Field, model_validator

from rolloutlog.contract.dispatch_settings import (
    Deadline,
    DispatchOrder,
    EnvironmentSettings,
    OldestOrder,
    OverProvision,
    Straggler,
    Truncated,
    Wait,
    WindowedOrder,
)
from rolloutlog.contract.ids import id_of
from rolloutlog.contract.numbers import deal
from rolloutlog.contract.section import LONGEST_S, MOST, MOST_BYTES, Section
from rolloutlog.contract.staleness_settings import Staleness

OWN = ("buffer_bytes", "buffer_groups", "readers", "starve_s", "write_s")
"""Of each process alone: they change nothing that is trained."""
MOST_READERS = 64


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
    order: DispatchOrder = Field(default_factory=OldestOrder)
    """Which whole group is drawn first, by its `type` or that word alone."""
    environments: dict[str, EnvironmentSettings] = Field(default_factory=dict[str, EnvironmentSettings])
    """What differs for the groups of one environment, by its name."""
    filters: list[str] = Field(default_factory=list[str])
    """Names of installed filters that a group must pass to be trained."""
    min_survivors: int = Field(default=2, ge=1, le=MOST)
    """Members with a reward that a group needs to be trained."""
    drop_zero_variance: bool = True
    """Drop groups whose rewards are all equal."""
    max_passes: int = Field(default=1, ge=1, le=MOST)
    """How often a group may be trained: more than once offline alone, where the source is gone through so often."""
    truncated: Truncated = "train"
    """What members do whose answer a limit cut: `train` as others, leave the loss and stay full members (`mask`), or
    count in the advantage alone (`baseline`)."""
    overcommit: bool = False
    """Allow more open groups than the staleness bound proves safe."""
    max_open: int | None = Field(default=None, ge=1, le=MOST)
    """Open groups at most; unset: B (n W + 1)."""
    buffer_bytes: int = Field(default=1 << 30, ge=1 << 20, le=MOST_BYTES)
    """Payload bytes of pending groups before partitions are paused."""
    buffer_groups: int = Field(default=4096, ge=1, le=MOST)
    """Pending groups before partitions are paused."""
    readers: int = Field(default=0, ge=0, le=MOST_READERS)
    """Processes that read `rollouts` for the trainer's own, each some of its partitions; 0: it reads them itself."""
    starve_s: float = Field(default=300.0, gt=0, le=LONGEST_S)
    """Without a whole group for so long, the trainer stops and says who is late."""
    write_s: float = Field(default=60.0, gt=0, le=LONGEST_S)
    """For so long the trainer tries to put a step on the log, while no broker answers or its transaction timed out."""

    @property
    def open_bound(self) -> int | None:
        """B (n W + 1) groups may be open so that none expires, less those that an order lets pass by
        (design/staleness#open-groups); None without a staleness limit."""
        judged = (self.staleness, *(e.staleness for e in self.environments.values() if e.staleness is not None))
        n = min((s.max_staleness for s in judged if s.max_staleness is not None), default=None)
        passing = self.order.window - 1 if isinstance(self.order, WindowedOrder) else 0
        return None if n is None else self.batch_groups * (n * self.sync_period + 1) - passing

    @property
    def open_groups(self) -> int:
        """Open groups at most: the setting, else the bound, else 4 batches."""
        if self.max_open is not None:
            return self.max_open
        return 4 * self.batch_groups if self.open_bound is None else max(self.open_bound, self.batch_groups)

    @property
    def weights(self) -> dict[str, float]:
        """Weights of the environments that have one, in their order; empty where a batch isn't dealt."""
        return {name: env.weight for name, env in self.environments.items() if env.weight is not None}

    def staleness_of(self, env: str | None) -> Staleness:
        """How old tokens of that environment may be (decisions/staleness#52)."""
        own = self.environments.get(env or "")
        return self.staleness if own is None or own.staleness is None else own.staleness

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
    def _enough_survive(self) -> TrainerSettings:
        match self.straggler:
            case Deadline(k=enough) | OverProvision(group_train=enough) if enough < self.min_survivors:
                raise ValueError(
                    f"straggler {self.straggler.type} goes on with {enough} members, and min_survivors "
                    f"{self.min_survivors} would drop them"
                )
            case _:
                return self

    @model_validator(mode="after")
    def _one_tail_batch(self) -> TrainerSettings:
        """Shards hold seeds back for the whole run."""
        tails = {name: e.staleness.expiry for name, e in self.environments.items() if e.staleness is not None}
        for name, expiry in tails.items():
            if getattr(expiry, "tail_batch", 1) not in (1, getattr(self.staleness.expiry, "tail_batch", 1)):
                raise ValueError(f"environment {name} has a tail_batch of its own: shards hold back for the whole run")
        return self

    @model_validator(mode="after")
    def _weights(self) -> TrainerSettings:
        weights = self.weights
        if not weights:
            return self
        if isinstance(self.order, WindowedOrder):
            raise ValueError(
                "order windowed doesn't go with weights: a group whose environment has its part would hold the others"
            )
        if len(weights) < len(self.environments):
            unweighed = sorted(self.environments.keys() - weights)
            raise ValueError(f"environments {', '.join(unweighed)} have no weight while others have one")
        if not any(weights.values()):
            raise ValueError("every environment has weight 0: nothing would be trained")
        dealt = deal(self.batch_groups, list(weights.values()))
        starved = [name for (name, weight), part in zip(weights.items(), dealt, strict=True) if weight and not part]
        if starved:
            none = ", ".join(starved)
            raise ValueError(f"by these weights {none} gets none of the {self.batch_groups} groups of a batch")
        return self

    @model_validator(mode="after")
    def _bounds(self) -> TrainerSettings:
        if self.buffer_groups < self.batch_groups:
            raise ValueError(f"buffer_groups {self.buffer_groups} is below a batch of {self.batch_groups} groups")
        if isinstance(self.order, WindowedOrder) and self.order.window > self.buffer_groups:
            raise ValueError(f"a window of {self.order.window} groups is above buffer_groups {self.buffer_groups}")
        bound = self.open_bound
        if bound is not None and bound < self.batch_groups and not self.overcommit:
            raise ValueError(
                f"so wide a window leaves {bound} open groups, below a batch of {self.batch_groups}: groups would "
                "expire; raise max_staleness, or set overcommit"
            )
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
