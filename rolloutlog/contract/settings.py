"""All settings of a run, with the defaults of design 11; unknown keys are refused.

Guarantees: a combination that can't work can't be written, or is refused when it is read (design 9.6); `digest` names
the settings that every member of a service must agree on. Leaves out: where settings come from
(`rolloutlog.cli.config`).
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import orjson
from pydantic import BaseModel, ConfigDict, Field, model_validator

from rolloutlog.contract.ids import id_of
from rolloutlog.contract.topics import KEEP_FOR_EVER, MAX_MESSAGE_BYTES, RECORD_MARGIN
from rolloutlog.contract.vocabulary import AnchorKind

NAMESPACE = r"^[A-Za-z0-9][A-Za-z0-9_-]{0,99}$"


class Section(BaseModel):
    """Base of all sections: frozen, unknown keys refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


class TopicSettings(Section):
    """How the run's topics are made."""

    partitions: int = Field(default=6, ge=1, le=1000)
    """P, fixed for the run's life; at least twice the number of worker processes."""
    replication: int | None = Field(default=None, ge=1)
    """Replicas; unset: 3, or as many as the cluster has brokers."""
    max_message_bytes: int = Field(default=MAX_MESSAGE_BYTES, ge=64 * 1024)
    """Longest record that the topics take."""
    retention_ms: int = Field(default=KEEP_FOR_EVER, ge=-1)
    """How long the records of `rollouts` and `rollout-index` are kept, the only topics of which any are deleted; -1 for
    ever."""

    @property
    def max_record_bytes(self) -> int:
        """Longest record that a producer sends; above it the body goes to the blob store."""
        return self.max_message_bytes - RECORD_MARGIN


class Continue(Section):
    """Go on from a compaction or a tool result of the source (reference prime_verifiers 54 to 68)."""

    type: Literal["continue"] = "continue"
    """The derivation."""
    anchor: AnchorKind = AnchorKind.COMPACTION
    """Where in the source to go on: after a compaction, or after a tool result."""
    max_anchors: int | None = Field(default=1, ge=1)
    """Tool-call anchors per source; unset: all."""


Derivation = Continue
"""A tagged union on `type`; one member per derivation that this build has."""


class Selection(Section):
    """Which rollouts may be sources (design 6, items 7, 13, 14, 21)."""

    source_envs: list[str] | None = None
    """`env` or `env/derivation`; unset: every environment, but nothing that is itself derived."""
    min_source_reward: float | None = None
    """Sources have at least this reward; unset: any."""
    max_source_reward: float | None = None
    """Sources have at most this reward; unset: any."""
    max_seed_tokens: int | None = Field(default=None, ge=1)
    """Candidates whose prompt has more tokens are skipped; unset: any length."""
    allow_container: bool = False
    """Also sources whose task ran in a container image."""

    @model_validator(mode="after")
    def _band(self) -> Selection:
        low, high = self.min_source_reward, self.max_source_reward
        if low is not None and high is not None and low > high:
            raise ValueError(f"min_source_reward {low} is above max_source_reward {high}")
        if self.source_envs is not None and not self.source_envs:
            raise ValueError("source_envs is empty: name environments, or leave it unset for all (item 7)")
        return self


class DerivationSettings(Section):
    """One derivation, what it draws from, and the group that it asks for."""

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9-]*$")
    """Recorded as `derivation`; sources of a chained one are named `env/name`."""
    derive: Derivation = Field(default_factory=Continue)
    """What the derivation does, by its `type`."""
    select: Selection = Field(default_factory=Selection)
    """Which rollouts it may draw from."""
    max_draws: int = Field(default=1, ge=1)
    """How often one candidate may be drawn."""
    group_size: int | None = Field(default=None, ge=1)
    """Members of the new group; unset: as many as the source's group."""
    budget: int | None = Field(default=None, ge=1)
    """New tokens a member may sample."""


def _default_derivations() -> list[DerivationSettings]:
    return [DerivationSettings(name=f"continue-{anchor}", derive=Continue(anchor=anchor)) for anchor in AnchorKind]


class BufferSettings(Section):
    """The buffer service (design 6)."""

    derivations: list[DerivationSettings] = Field(default_factory=_default_derivations)
    """What new tasks are made of old rollouts; an empty list turns the buffer into an index only."""
    ratio: float = Field(default=1.0, ge=0)
    """Derived seeds per resolved underived group, at most."""
    capacity: int = Field(default=4096, ge=1)
    """Candidates a shard keeps, newest."""
    salt: str = "0"
    """Changes every draw."""
    lease_s: float = Field(default=60.0, gt=0)
    """Seconds that a worker holds a seed without renewing; then the seed is emitted again."""
    max_attempts: int = Field(default=3, ge=1)
    """Tries at one member, after which it is cancelled."""
    cache_bytes: int = Field(default=8 * 1024 * 1024, ge=0)
    """Folded payloads kept for rendering, per shard."""

    @model_validator(mode="after")
    def _names(self) -> BufferSettings:
        names = [derivation.name for derivation in self.derivations]
        if len(set(names)) != len(names):
            raise ValueError(f"two derivations have one name: {names}")
        return self


class Wait(Section):
    """Wait for every member."""

    type: Literal["wait"] = "wait"
    """The policy."""


class Deadline(Section):
    """Go on without the missing ones once `seconds` passed on the partition and at least `k` members are there."""

    type: Literal["deadline"] = "deadline"
    """The policy."""
    seconds: float = Field(gt=0)
    """Time since the group's first record, on the broker's clock, however wrong a worker's or the trainer's own is."""
    k: int = Field(default=2, ge=1)
    """Members that must be there."""


class OverProvision(Section):
    """Dispatch `group_size`, train the first `group_train`; the rest are surplus."""

    type: Literal["over-provision"] = "over-provision"
    """The policy."""


Straggler = Annotated[Wait | Deadline | OverProvision, Field(discriminator="type")]
OnExpire = Literal["reroll-members", "reroll-group", "drop-group", "keep-as-baseline"]


class Staleness(Section):
    """How old a token may be when it is trained (reference xtuner 2 and 3; design 8)."""

    max_staleness: int | None = Field(default=1, ge=0)
    """Sync periods by which the oldest sampled token may lag; unset: no limit."""
    max_token_staleness: int | None = Field(default=None, ge=0)
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
                    f"max_staleness {self.max_staleness} (reference xtuner 2.3)"
                )
            if self.on_expire is None:
                raise ValueError(
                    "with max_token_staleness a member can lose all its tokens: set on_expire to reroll-members, "
                    "reroll-group, drop-group or keep-as-baseline"
                )
        return self


class TrainerSettings(Section):
    """The trainer's side of the log (design 8)."""

    batch_groups: int = Field(default=8, ge=1)
    """B: groups a train step consumes."""
    sync_period: int = Field(default=1, ge=1)
    """W: train steps between two weight publications."""
    staleness: Staleness = Field(default_factory=Staleness)
    """How old a token may be."""
    straggler: Straggler = Field(default_factory=Wait)
    """What to do about members that come late, by its `type`."""
    order: Literal["oldest", "arrival"] = "oldest"
    """Which whole group is drawn first."""
    min_survivors: int = Field(default=2, ge=1)
    """Members with a reward that a group needs to be trained."""
    drop_zero_variance: bool = True
    """Drop groups whose rewards are all equal."""
    max_passes: int = Field(default=1, ge=1)
    """How often a group may be trained."""
    overcommit: bool = False
    """Allow more open groups than the staleness bound proves safe."""
    max_open: int | None = Field(default=None, ge=1)
    """Open groups at most; unset: B (n W + 1)."""
    buffer_bytes: int = Field(default=1 << 30, ge=1 << 20)
    """Payload bytes of pending groups before partitions are paused."""
    buffer_groups: int = Field(default=4096, ge=1)
    """Pending groups before partitions are paused."""
    starve_s: float = Field(default=300.0, gt=0)
    """Without progress for so long, the trainer stops and says who is late."""

    @property
    def open_bound(self) -> int | None:
        """B (n W + 1) groups may be open so that none expires (design 8); None without a staleness limit."""
        n = self.staleness.max_staleness
        return None if n is None else self.batch_groups * (n * self.sync_period + 1)

    @property
    def open_groups(self) -> int:
        """Open groups at most: the setting, else the bound, else 4 batches."""
        return self.max_open or self.open_bound or 4 * self.batch_groups

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


class Settings(Section):
    """Everything a deployment is told."""

    namespace: str = Field(default="rolloutlog", pattern=NAMESPACE)
    """Prefix of the run's topics, consumer groups and transactional ids."""
    run: str | None = None
    """Run id; unset: the namespace."""
    bootstrap_servers: str | None = None
    """Address of the Kafka cluster; unset: the embedded broker of the data folder."""
    command_config: str | None = None
    """A Java client.properties with security settings."""
    topics: TopicSettings = Field(default_factory=TopicSettings)
    """How the run's topics are made."""
    buffer: BufferSettings = Field(default_factory=BufferSettings)
    """The buffer service."""
    trainer: TrainerSettings = Field(default_factory=TrainerSettings)
    """The trainer's side of the log."""
    blobs: str | None = None
    """Folder or URL for bodies above the topic's limit."""

    @property
    def run_id(self) -> str:
        """Run id: the setting, or the namespace."""
        return self.run or self.namespace

    def agreed(self) -> dict[str, Any]:
        """What every member of the run must agree on; recorded under its digest on `run`."""
        buffer = self.buffer.model_dump(mode="json", exclude={"cache_bytes"})
        trainer = self.trainer.model_dump(
            mode="json", include={"batch_groups", "sync_period", "staleness", "max_open", "overcommit", "max_passes"}
        )
        topics = {"partitions": self.topics.partitions}
        return {"run": self.run_id, "topics": topics, "buffer": buffer, "trainer": trainer}

    @property
    def digest(self) -> str:
        """Id of `agreed`."""
        return id_of("settings", orjson.dumps(self.agreed(), option=orjson.OPT_SORT_KEYS).decode())
