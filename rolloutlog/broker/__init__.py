"""The embedded broker: Apache Kafka 4.4.0 itself, run as child processes with nothing installed before.

Guarantees: one broker per data folder; it is the real one, found again by its state file, and an owned one ends when
its owner does. Leaves out: everything that speaks Kafka's protocol beyond a readiness test (`rolloutlog.kafka`),
topics, and brokers that somebody else runs (`bootstrap_servers` chooses those).

Importing this room loads nothing, since its pytest plugin is imported by every pytest on the machine; the Java
runtime, jgo and psutil (the extra [broker]) are looked for when they are needed.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rolloutlog.broker.daemon import down, find, logs, reset, up
    from rolloutlog.broker.embedded import EmbeddedKafka
    from rolloutlog.broker.install.jars import fetch
    from rolloutlog.broker.install.start_progress import StartProgress
    from rolloutlog.broker.process.state import BrokerState, NodeState

__all__ = ["BrokerState", "EmbeddedKafka", "NodeState", "StartProgress", "down", "fetch", "find", "logs", "reset", "up"]

HOMES = {
    "daemon": ("down", "find", "logs", "reset", "up"),
    "embedded": ("EmbeddedKafka",),
    "install.jars": ("fetch",),
    "install.start_progress": ("StartProgress",),
    "process.state": ("BrokerState", "NodeState"),
}


def __getattr__(name: str) -> object:
    """The names above, from their modules, when they are first used."""
    for module, names in HOMES.items():
        if name in names:
            return getattr(import_module(f"{__name__}.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
