"""How old a token may be when it is trained, and what follows where it is older (design/staleness#tests).

Guarantees: what could never mask anything, or would lose fresh members unasked, can't be written. Leaves out: the rule
(`rolloutlog.trainer.staleness.rule`), and the other settings of a trainer (`trainer_settings`).
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, model_validator

from rolloutlog.contract.section import LONGEST_S, MOST, Section, tagged


class RerollMembers(Section):
    """Ask for the stale members again; fresh ones stay as they are. Where nobody can be asked it is drop-members."""

    type: Literal["reroll-members"] = "reroll-members"
    """What is done."""
    tries: int | None = Field(default=None, ge=1, le=MOST)
    """How often one member may expire, after which the group goes on without it; unset: until the shard gives it up
    (`buffer.max_attempts`)."""
    wait_s: float | None = Field(default=None, gt=0, le=LONGEST_S)
    """Seconds on the broker's clock that a group waits for members it asked again, after which it goes on without them;
    unset: as long as it takes."""
    tail_batch: int = Field(default=1, ge=1, le=MOST)
    """Seeds for expired members are held back until there are so many in the run, so that long rollouts are made again
    together; 1: none is."""
    tail_wait_s: float = Field(default=60.0, gt=0, le=LONGEST_S)
    """Seconds that such a seed is held back at most."""


class RerollGroup(Section):
    """Ask for all members of the group again. Where nobody can be asked it is drop-members."""

    type: Literal["reroll-group"] = "reroll-group"
    """What is done."""
    tries: int | None = Field(default=None, ge=1, le=MOST)
    """As for reroll-members."""
    wait_s: float | None = Field(default=None, gt=0, le=LONGEST_S)
    """As for reroll-members."""
    tail_batch: int = Field(default=1, ge=1, le=MOST)
    """As for reroll-members."""
    tail_wait_s: float = Field(default=60.0, gt=0, le=LONGEST_S)
    """As for reroll-members."""


class DropMembers(Section):
    """The stale members leave; the others train if `min_survivors` remain."""

    type: Literal["drop-members"] = "drop-members"
    """What is done."""


class DropGroup(Section):
    """The whole group is dropped, fresh members too."""

    type: Literal["drop-group"] = "drop-group"
    """What is done."""


class KeepAsBaseline(Section):
    """The stale members' rewards stay in the group's baseline; no token of theirs trains."""

    type: Literal["keep-as-baseline"] = "keep-as-baseline"
    """What is done."""


OnExpire = Annotated[
    RerollMembers | RerollGroup | DropMembers | DropGroup | KeepAsBaseline,
    Field(discriminator="type"),
    BeforeValidator(tagged),
]


UNSET = RerollMembers()
"""What becomes of stale members where nothing is set; one for all, since every event of a waiting group asks."""


class Staleness(Section):
    """How old a token may be when it is trained (design/staleness#thresholds)."""

    max_staleness: int | None = Field(default=1, ge=0, le=MOST)
    """Sync periods by which the oldest sampled token may lag; unset: no limit."""
    max_token_staleness: int | None = Field(default=None, ge=0, le=MOST)
    """Sync periods after which a single token leaves the loss, below `max_staleness` and with `on_expire` set; unset:
    masking is off."""
    on_expire: OnExpire | None = None
    """What becomes of stale members, by its `type` or that word alone; unset: reroll-members."""
    on_unknown: Literal["exempt", "drop"] | None = None
    """Tokens of unknown policy; unset: exempt offline and on imported policies, drop live."""
    abandoned: Literal["from-fork", "drop"] = "from-fork"
    """Tokens of a timeline that a resume left behind."""

    @property
    def expiry(self) -> RerollMembers | RerollGroup | DropMembers | DropGroup | KeepAsBaseline:
        """What becomes of stale members: the setting, or its default."""
        return self.on_expire or UNSET

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
                    "reroll-group, drop-members, drop-group or keep-as-baseline"
                )
        if self.on_expire is not None and not self._can_expire:
            raise ValueError(
                f"on_expire {self.on_expire.type} never does anything: without max_staleness, max_token_staleness and "
                "abandoned = drop nothing expires"
            )
        return self

    @property
    def _can_expire(self) -> bool:
        limits = (self.max_staleness, self.max_token_staleness)
        return any(limit is not None for limit in limits) or self.abandoned == "drop"
