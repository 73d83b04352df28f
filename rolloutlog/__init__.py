"""rolloutlog: the data plane of asynchronous RL post-training, kept as an event log on Apache Kafka.

Guarantees: importing the package loads none of its rooms and no dependency; what it offers is loaded when first asked
for. Leaves out: everything else, which lives in the rooms: contract, formats, buffer, kafka, broker, policy, trainer,
producers, consumers, supervisor and cli.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from types import ModuleType

    from rolloutlog.broker import EmbeddedKafka
    from rolloutlog.consumers.replaying.replay_buffer import ReplayBuffer
    from rolloutlog.contract.policies import Policy
    from rolloutlog.contract.record.node import Node
    from rolloutlog.contract.record.rollout import Rollout
    from rolloutlog.contract.record.slot import Slot
    from rolloutlog.contract.record.trajectory import Trajectory
    from rolloutlog.contract.settings import Settings
    from rolloutlog.producers.policy_follower import PolicyFollower
    from rolloutlog.producers.policy_publisher import PolicyPublisher
    from rolloutlog.producers.producer import RolloutProducer
    from rolloutlog.producers.sync_policy_follower import SyncPolicyFollower
    from rolloutlog.producers.sync_producer import SyncRolloutProducer
    from rolloutlog.trainer.batches.losses import policy_loss
    from rolloutlog.trainer.batches.tensors import pack
    from rolloutlog.trainer.loop.checkpoint_folder import CheckpointFolder
    from rolloutlog.trainer.loop.rollout_dataset import RolloutDataset
    from rolloutlog.trainer.loop.sync_group_stream import SyncGroupStream
    from rolloutlog.trainer.stream.group_stream import GroupStream
    from rolloutlog.trainer.stream.starting import Start

_HOME = {
    "CheckpointFolder": "rolloutlog.trainer.loop.checkpoint_folder",
    "EmbeddedKafka": "rolloutlog.broker",
    "GroupStream": "rolloutlog.trainer.stream.group_stream",
    "Node": "rolloutlog.contract.record.node",
    "Policy": "rolloutlog.contract.policies",
    "PolicyFollower": "rolloutlog.producers.policy_follower",
    "PolicyPublisher": "rolloutlog.producers.policy_publisher",
    "ReplayBuffer": "rolloutlog.consumers.replaying.replay_buffer",
    "Rollout": "rolloutlog.contract.record.rollout",
    "RolloutDataset": "rolloutlog.trainer.loop.rollout_dataset",
    "RolloutProducer": "rolloutlog.producers.producer",
    "Settings": "rolloutlog.contract.settings",
    "Slot": "rolloutlog.contract.record.slot",
    "Start": "rolloutlog.trainer.stream.starting",
    "SyncGroupStream": "rolloutlog.trainer.loop.sync_group_stream",
    "SyncPolicyFollower": "rolloutlog.producers.sync_policy_follower",
    "SyncRolloutProducer": "rolloutlog.producers.sync_producer",
    "Trajectory": "rolloutlog.contract.record.trajectory",
    "pack": "rolloutlog.trainer.batches.tensors",
    "policy_loss": "rolloutlog.trainer.batches.losses",
}

__all__ = [
    "CheckpointFolder",
    "EmbeddedKafka",
    "GroupStream",
    "Node",
    "Policy",
    "PolicyFollower",
    "PolicyPublisher",
    "ReplayBuffer",
    "Rollout",
    "RolloutDataset",
    "RolloutProducer",
    "Settings",
    "Slot",
    "Start",
    "SyncGroupStream",
    "SyncPolicyFollower",
    "SyncRolloutProducer",
    "Trajectory",
    "pack",
    "policy_loss",
]


def __getattr__(name: str) -> Any:
    """Load a public name from its room; read `__version__` from the installed distribution.

    Raises MissingExtra for `CheckpointFolder`, `RolloutDataset`, `pack` and `policy_loss` without torch.
    """
    if name in _HOME:
        return getattr(_room(_HOME[name]), name)
    if name == "__version__":
        from importlib.metadata import version

        return version("rolloutlog")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """Public names, loaded or not, so that they can be completed."""
    return sorted({*globals(), *__all__})


def _room(home: str) -> ModuleType:
    try:
        return importlib.import_module(home)
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] != "torch":
            raise
        from rolloutlog.contract.errors import MissingExtra

        raise MissingExtra("trainer", "torch") from error
