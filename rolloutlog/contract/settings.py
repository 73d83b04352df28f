"""All settings of a run, with their defaults; unknown keys are refused.

Guarantees: a combination that can't work can't be written, or is refused when it is read (design/log#settings);
`digest` names the settings that every service of a run must agree on for its life. Leaves out: where settings come from
(`rolloutlog.settings_sources`, to which `load` is the one door out of this room), and those of the trainer, which may
change whenever it starts (`trainer_settings`).
"""

from __future__ import annotations

import math
from typing import Any

import orjson
from pydantic import Field, ValidationError, model_validator

from rolloutlog.contract.derivation_types import Derive, default_derivation, derivation_types
from rolloutlog.contract.dispatch_settings import (
    ArrivalOrder,
    Deadline,
    DispatchOrder,
    EnvironmentSettings,
    FreshestOrder,
    OldestOrder,
    OverProvision,
    ShuffledOrder,
    Straggler,
    Truncated,
    Wait,
    WindowedOrder,
)
from rolloutlog.contract.errors import SettingsError
from rolloutlog.contract.handles import NAMESPACE
from rolloutlog.contract.ids import id_of
from rolloutlog.contract.section import LONGEST_S, MOST, MOST_BYTES, Section
from rolloutlog.contract.service_settings.loop_settings import LoopSettings
from rolloutlog.contract.service_settings.training_settings import (
    AdamW,
    LossSettings,
    ModelSettings,
    OptimizerSettings,
    TrainingSettings,
    TransformerModel,
)
from rolloutlog.contract.service_settings.worker_settings import WorkerSettings
from rolloutlog.contract.staleness_settings import (
    DropGroup,
    DropMembers,
    KeepAsBaseline,
    OnExpire,
    RerollGroup,
    RerollMembers,
    Staleness,
)
from rolloutlog.contract.topics import KEEP_FOR_EVER, MAX_GROUP, MAX_MESSAGE_BYTES, RECORD_MARGIN
from rolloutlog.contract.trainer_settings import TrainerSettings
from rolloutlog.contract.vocabulary import AnchorKind

__all__ = [
    "ArrivalOrder",
    "BufferSettings",
    "Deadline",
    "DerivationSettings",
    "DispatchOrder",
    "DropGroup",
    "DropMembers",
    "EnvironmentSettings",
    "FreshestOrder",
    "KeepAsBaseline",
    "KeepSettings",
    "OldestOrder",
    "OnExpire",
    "OverProvision",
    "RerollGroup",
    "RerollMembers",
    "Section",
    "Selection",
    "Settings",
    "ShuffledOrder",
    "Staleness",
    "Straggler",
    "TopicSettings",
    "TrainerSettings",
    "Truncated",
    "Wait",
    "WindowedOrder",
    "WorkerSettings",
]


class TopicSettings(Section):
    """How the run's topics are made."""

    partitions: int = Field(default=6, ge=1, le=1000)
    """P, fixed for the run's life; at least twice the number of worker processes."""
    replication: int | None = Field(default=None, ge=1, le=2**15 - 1)
    """Replicas; unset: 3, or as many as the cluster has brokers."""
    max_message_bytes: int = Field(default=MAX_MESSAGE_BYTES, ge=64 * 1024, le=1 << 30)
    """Longest record that the topics take."""
    retention_ms: int = Field(default=KEEP_FOR_EVER, ge=-1, le=2**63 - 1)
    """How long the records of `rollouts` and `rollout-index` are kept, the only topics of which any are deleted; -1 for
    ever."""

    @property
    def max_record_bytes(self) -> int:
        """Longest record that a producer sends; above it the body goes to the blob store."""
        return self.max_message_bytes - RECORD_MARGIN


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


class Settings(Section):
    """All settings of a deployment."""

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
    model: ModelSettings = Field(default_factory=TransformerModel)
    """What `train run` trains, by its `type`."""
    optimizer: OptimizerSettings = Field(default_factory=AdamW)
    """How its weights move, by its `type`."""
    loss: LossSettings = Field(default_factory=LossSettings)
    """Where they move."""
    training: TrainingSettings = Field(default_factory=TrainingSettings)
    """How `train run` trains a model, and what it keeps."""
    loop: LoopSettings = Field(default_factory=LoopSettings)
    """What `rolloutlog run` starts."""
    worker: WorkerSettings = Field(default_factory=WorkerSettings)
    """Workers of this deployment."""
    blobs: str | None = None
    """Folder or URL for bodies above the topic's limit."""

    @classmethod
    def load(cls, config: str | None = None, **given: Any) -> Settings:
        """Settings as the command line reads them: what is `given` by name, then `ROLLOUTLOG_*`, then the file `config`
        or `./rolloutlog.toml`, then defaults; the address of the broker that runs in the data folder where none is set.

        Raises SettingsError.
        """
        from rolloutlog.settings_sources import load_with_broker

        return load_with_broker(given, config)

    @classmethod
    def of(cls, settings: Settings | None = None, **given: str | None) -> Settings:
        """For programs: `settings` (None: the defaults) with those `given` by name that aren't None in their place.

        Raises SettingsError.
        """
        if settings is not None and not any(given.values()):
            return settings
        base = {} if settings is None else settings.model_dump(exclude_unset=True)
        try:
            return cls.model_validate(base | {name: text for name, text in given.items() if text is not None})
        except ValidationError as error:
            first = error.errors()[0]
            raise SettingsError(f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from error

    @property
    def run_id(self) -> str:
        """Run id: the setting, or the namespace."""
        return self.run or self.namespace

    def agreed(self) -> dict[str, Any]:
        """What every service of the run must agree on for its life; recorded under its digest on `run`."""
        buffer = self.buffer.model_dump(mode="json", exclude={"cache_bytes"})
        return {"run": self.run_id, "topics": {"partitions": self.topics.partitions}, "buffer": buffer}

    @property
    def digest(self) -> str:
        """Id of `agreed`."""
        return settings_digest(self.agreed())


def settings_digest(agreed: Any) -> str:
    """Id of the text of settings that a run agrees on."""
    return id_of("settings", orjson.dumps(agreed, option=orjson.OPT_SORT_KEYS).decode())
