"""rolloutlog: the data plane of asynchronous RL post-training, kept as an event log on Apache Kafka.

Guarantees: importing the package loads none of its rooms and no dependency; what it offers is loaded when first asked
for. Leaves out: everything else, which lives in the rooms: contract, kafka, broker, cli, producers, consumers, buffer
and trainer.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rolloutlog.broker import EmbeddedKafka
    from rolloutlog.contract.node import Node
    from rolloutlog.contract.policies import Policy
    from rolloutlog.contract.rollout import Rollout
    from rolloutlog.contract.settings import Settings
    from rolloutlog.contract.slot import Slot
    from rolloutlog.contract.trajectory import Trajectory
    from rolloutlog.producers.facade import SyncRolloutProducer
    from rolloutlog.producers.policies import PolicyPublisher
    from rolloutlog.producers.producer import RolloutProducer
    from rolloutlog.trainer.stream import GroupStream

_HOME = {
    "EmbeddedKafka": "rolloutlog.broker",
    "GroupStream": "rolloutlog.trainer.stream",
    "Node": "rolloutlog.contract.node",
    "Policy": "rolloutlog.contract.policies",
    "PolicyPublisher": "rolloutlog.producers.policies",
    "Rollout": "rolloutlog.contract.rollout",
    "RolloutProducer": "rolloutlog.producers.producer",
    "Settings": "rolloutlog.contract.settings",
    "Slot": "rolloutlog.contract.slot",
    "SyncRolloutProducer": "rolloutlog.producers.facade",
    "Trajectory": "rolloutlog.contract.trajectory",
}

__all__ = [
    "EmbeddedKafka",
    "GroupStream",
    "Node",
    "Policy",
    "PolicyPublisher",
    "Rollout",
    "RolloutProducer",
    "Settings",
    "Slot",
    "SyncRolloutProducer",
    "Trajectory",
]


def __getattr__(name: str) -> Any:
    """Load a public name from its room; read `__version__` from the installed distribution."""
    if name in _HOME:
        return getattr(importlib.import_module(_HOME[name]), name)
    if name == "__version__":
        from importlib.metadata import version

        return version("rolloutlog")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
