"""Settings of the buffer: what it derives, from which sources, and what it keeps.

Guarantees: shares, bands and names that can't work are refused when they are read (design/log#settings). Leaves out:
how a derivation works (`derivation_types`), and how many groups may be open, which the trainer's say.
"""

from __future__ import annotations

import math

from pydantic import Field, model_validator

from rolloutlog.contract.derivation_types import Derive, default_derivation, derivation_types
from rolloutlog.contract.section import LONGEST_S, MOST, MOST_BYTES, Section
from rolloutlog.contract.topics import MAX_GROUP
from rolloutlog.contract.vocabulary import AnchorKind


class Selection(Section):
    """Which rollouts may be sources (design/buffer#selection)."""

    source_envs: list[str] | None = None
    """`env` or `env/derivation`; unset: every environment, but nothing that is itself derived."""
    min_source_reward: float | None = None
    """Sources have at least this reward; unset: any."""
    max_source_reward: float | None = None
    """Sources have at most this reward; unset: any."""
    max_seed_tokens: int | None = Field(default=None, ge=1, le=MOST)
    """Candidates whose prompt has more tokens are skipped; unset: any length."""
    allow_container: bool = False
    """Also sources whose task ran in a container image."""
    eval: bool = False
    """Also recorded evals: what is derived of them trains, they themselves never do."""
    max_depth: int = Field(default=2, ge=1, le=MOST)
    """Derivations between a seed and its original task, at most, so that chains end: 1 is no chain, 2 one of two."""

    @model_validator(mode="after")
    def _band(self) -> Selection:
        low, high = self.min_source_reward, self.max_source_reward
        if low is not None and high is not None and low > high:
            raise ValueError(f"min_source_reward {low} is above max_source_reward {high}")
        if self.source_envs is not None and not self.source_envs:
            raise ValueError("source_envs is empty: name environments, or leave it unset for all")
        return self


LEAST_SHARE = 1e-6
"""Shares that lack less than this of 1 are whole."""


class DerivationSettings(Section):
    """One derivation, what it draws from, and the group that it asks for."""

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9-]*$")
    """Recorded as `derivation`; sources of a chained one are named `env/name`."""
    derive: Derive = Field(default_factory=default_derivation)
    """What the derivation does, by its `type`: one of those that are installed."""
    select: Selection = Field(default_factory=Selection)
    """Which rollouts it may draw from."""
    share: float | None = Field(default=None, gt=0, le=1)
    """Part of `ratio` that is its own; all derivations have one, and together they make 1, or none has: then each has a
    part by how many candidates it has."""
    max_draws: int = Field(default=1, ge=1, le=MOST)
    """How often one candidate may be drawn."""
    group_size: int | None = Field(default=None, ge=2, le=MAX_GROUP)
    """Members of the new group; unset: as many as the source's group, or the run's `group_size` where that is one."""
    budget: int | None = Field(default=None, ge=1, le=MOST)
    """New tokens a member may sample; unset: what the run's `seq_len` leaves, if that is set."""

    @model_validator(mode="after")
    def _does_what_it_is_called(self) -> DerivationSettings:
        done = type(self.derive).model_fields["type"].default
        if self.name in derivation_types() and self.name != done:
            raise ValueError(
                f'{self.name} would {done}: say `derive = {{ type = "{self.name}" }}`, or name it otherwise'
            )
        return self


def _default_derivations() -> list[DerivationSettings]:
    continued = [{"type": "continue", "anchor": anchor} for anchor in AnchorKind]
    given = [(f"continue-{each['anchor']}", each) for each in continued] + [("recheck", {"type": "recheck"})]
    return [DerivationSettings.model_validate({"name": name, "derive": derive}) for name, derive in given]


class KeepSettings(Section):
    """What a shard keeps of its newest candidates (design/buffer#eviction)."""

    max_age: int | None = Field(default=None, ge=0, le=MOST)
    """Versions by which a record may be newer than a source before that leaves; unset: no limit."""
    env_share: float | None = Field(default=None, gt=0, le=1)
    """Part of the capacity that one environment may take, above which its oldest leave; unset: all of it."""
    min_reward: float | None = None
    """Sources of less reward aren't kept; unset: any."""
    max_reward: float | None = None
    """Sources of more reward aren't kept; unset: any."""

    @model_validator(mode="after")
    def _band(self) -> KeepSettings:
        low, high = self.min_reward, self.max_reward
        if low is not None and high is not None and low > high:
            raise ValueError(f"min_reward {low} is above max_reward {high}")
        return self


class BufferSettings(Section):
    """The buffer service (design/buffer#fold)."""

    derivations: list[DerivationSettings] = Field(default_factory=_default_derivations)
    """What new tasks are made of old rollouts; an empty list turns the buffer into an index only."""
    group_size: int = Field(default=8, ge=2, le=MAX_GROUP)
    """Members of a derived group whose source was alone and whose derivation says none."""
    seq_len: int | None = Field(default=None, ge=2, le=MOST)
    """Tokens of a whole sequence: a derived seed's budget is what its prompt leaves; unset: no budget."""
    ratio: float = Field(default=1.0, ge=0, le=1e6)
    """Derived seeds per resolved underived group, at most."""
    capacity: int = Field(default=4096, ge=1, le=MOST)
    """Candidates a shard keeps, newest."""
    keep: KeepSettings = Field(default_factory=KeepSettings)
    """Limits within that capacity."""
    salt: str = "0"
    """Changes every draw."""
    lease_s: float = Field(default=60.0, gt=0, le=LONGEST_S)
    """Seconds that a worker holds a seed without renewing; then the seed is emitted again."""
    max_attempts: int = Field(default=3, ge=1, le=MOST)
    """Tries at one member, after which it is cancelled."""
    cache_bytes: int = Field(default=8 * 1024 * 1024, ge=0, le=MOST_BYTES)
    """Folded payloads kept for rendering, per shard."""

    @model_validator(mode="after")
    def _names(self) -> BufferSettings:
        names = [derivation.name for derivation in self.derivations]
        if len(set(names)) != len(names):
            raise ValueError(f"two derivations have one name: {names}")
        return self

    @model_validator(mode="after")
    def _shares(self) -> BufferSettings:
        """Shares that can be kept (decisions/replay#2)."""
        shares = [derivation.share for derivation in self.derivations if derivation.share is not None]
        if shares and len(shares) < len(self.derivations):
            bare = [derivation.name for derivation in self.derivations if derivation.share is None]
            raise ValueError(f"where one derivation has a share of the ratio all must, and {', '.join(bare)} has none")
        if shares and not math.isclose(sum(shares), 1, abs_tol=LEAST_SHARE):
            raise ValueError(f"the shares of the derivations make {sum(shares):g} together, not 1")
        return self
