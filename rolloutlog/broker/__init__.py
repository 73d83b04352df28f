"""The embedded broker: Apache Kafka 4.4.0 itself, run as child processes with nothing installed before.

Guarantees: one broker per data folder; it is the real one, found again by its state file, and an owned one ends when
its owner does. Leaves out: everything that speaks Kafka's protocol beyond a readiness test (`rolloutlog.kafka`),
topics, and brokers that somebody else runs (`bootstrap_servers` chooses those). Importing this room is light: Java
runtime, jars and psutil (the extra [broker]) are looked for when they are needed.
"""

from __future__ import annotations

from rolloutlog.broker.daemon import down, find, logs, reset, up
from rolloutlog.broker.embedded import EmbeddedKafka
from rolloutlog.broker.jars import fetch
from rolloutlog.broker.progress import Progress
from rolloutlog.broker.state import BrokerState, NodeState

__all__ = ["BrokerState", "EmbeddedKafka", "NodeState", "Progress", "down", "fetch", "find", "logs", "reset", "up"]
