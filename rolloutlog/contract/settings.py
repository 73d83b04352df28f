"""All settings of a run, with their defaults; unknown keys are refused.

Guarantees: a combination that can't work can't be written, or is refused when it is read (design/log#settings);
`digest` names the settings that every service of a run must agree on for its life. Leaves out: where settings come from
(`rolloutlog.settings_sources`, to which `load` is the one door out of this room), those of the buffer
(`buffer_settings`), and those of the trainer, which may change whenever it starts (`trainer_settings`).
"""

from __future__ import annotations

from typing import Any

import orjson
from pydantic import Field, ValidationError

from rolloutlog.contract.buffer_settings import BufferSettings, DerivationSettings, KeepSettings, Selection
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
from rolloutlog.contract.section import Section
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
from rolloutlog.contract.topics import KEEP_FOR_EVER, MAX_MESSAGE_BYTES, RECORD_MARGIN
from rolloutlog.contract.trainer_settings import TrainerSettings

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
