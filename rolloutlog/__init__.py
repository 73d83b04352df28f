"""rolloutlog: the data plane of asynchronous RL post-training, kept as an event log on Apache Kafka.

Guarantees: importing the package loads none of its rooms and no dependency; what it offers is loaded when first asked
for. Leaves out: everything else, which lives in the rooms: contract, kafka, broker, cli, producers, consumers, buffer
and trainer.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from types import ModuleType

    from rolloutlog.broker import EmbeddedKafka
    from rolloutlog.contract.node import Node
    from rolloutlog.contract.policies import Policy
    from rolloutlog.contract.rollout import Rollout
    from rolloutlog.contract.settings import Settings
    from rolloutlog.contract.slot import Slot
    from rolloutlog.contract.trajectory import Trajectory
    from rolloutlog.producers.facade import SyncRolloutProducer
    from rolloutlog.producers.follower import PolicyFollower
    from rolloutlog.producers.policies import PolicyPublisher
    from rolloutlog.producers.producer import RolloutProducer
    from rolloutlog.producers.sync_follower import SyncPolicyFollower
    from rolloutlog.trainer.opening import Start
    from rolloutlog.trainer.stream import GroupStream
    from rolloutlog.trainer.tensors import pack

_HOME = {
    "EmbeddedKafka": "rolloutlog.broker",
    "GroupStream": "rolloutlog.trainer.stream",
    "Node": "rolloutlog.contract.node",
    "Policy": "rolloutlog.contract.policies",
    "PolicyFollower": "rolloutlog.producers.follower",
    "PolicyPublisher": "rolloutlog.producers.policies",
    "Rollout": "rolloutlog.contract.rollout",
    "RolloutProducer": "rolloutlog.producers.producer",
    "Settings": "rolloutlog.contract.settings",
    "Slot": "rolloutlog.contract.slot",
    "Start": "rolloutlog.trainer.opening",
    "SyncPolicyFollower": "rolloutlog.producers.sync_follower",
    "SyncRolloutProducer": "rolloutlog.producers.facade",
    "Trajectory": "rolloutlog.contract.trajectory",
    "pack": "rolloutlog.trainer.tensors",
}

__all__ = [
    "EmbeddedKafka",
    "GroupStream",
    "Node",
    "Policy",
    "PolicyFollower",
    "PolicyPublisher",
    "Rollout",
    "RolloutProducer",
    "Settings",
    "Slot",
    "Start",
    "SyncPolicyFollower",
    "SyncRolloutProducer",
    "Trajectory",
    "pack",
]


def __getattr__(name: str) -> Any:
    """Load a public name from its room; read `__version__` from the installed distribution.

    Raises MissingExtra for `pack` without torch.
    """
    if name in _HOME:
        return getattr(_room(_HOME[name]), name)
    if name == "__version__":
        from importlib.metadata import version

        return version("rolloutlog")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _room(home: str) -> ModuleType:
    try:
        return importlib.import_module(home)
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        from rolloutlog.contract.errors import MissingExtra

        raise MissingExtra("trainer", "torch") from error
