"""Kafka's settings of one node of our broker, and of its log.

Guarantees: what a real cluster guarantees (no unclean leaders, replicated offsets and transactions on three nodes),
with small internal topics and short sessions, so that a killed node is back in seconds. Leaves out: settings of
topics.
"""

from __future__ import annotations

from collections.abc import Mapping

from rolloutlog.broker.process.ports import HOST
from rolloutlog.broker.process.state import BrokerState

LARGEST_RECORD = 16 * 2**20  # twice what our topics allow (`max.message.bytes` 8 MiB)

LOG4J2 = """\
<Configuration status="warn">
  <Appenders>
    <RollingFile name="file" fileName="server.log" filePattern="server.log.%i">
      <PatternLayout pattern="%d %p %c - %m%n"/>
      <Policies><OnStartupTriggeringPolicy/><SizeBasedTriggeringPolicy size="10 MB"/></Policies>
      <DefaultRolloverStrategy max="3"/>
    </RollingFile>
  </Appenders>
  <Loggers><Root level="info"><AppenderRef ref="file"/></Root></Loggers>
</Configuration>
"""


LISTS = ("listeners", "advertised.listeners", "listener.security.protocol.map")
"""What is asked for of these is added to ours, since our own listeners are what tells that a node is ready."""


def server_properties(state: BrokerState, id: int, own: Mapping[str, str]) -> str:
    """The text of server.properties for node `id`. Paths are relative: the JVM's working folder is the node's.

    `own` are the caller's, which win.
    """
    settings = _listeners(state, id) | _replication(len(state.nodes)) | _limits() | _pace()
    settings |= {name: f"{settings[name]},{text}" if name in LISTS else text for name, text in own.items()}
    return "".join(f"{name}={value}\n" for name, value in settings.items())


def _listeners(state: BrokerState, id: int) -> dict[str, object]:
    node = state.node(id)
    listeners = f"PLAINTEXT://{HOST}:{node.port},CONTROLLER://{HOST}:{node.controller_port}"
    return {
        "process.roles": "broker,controller",
        "node.id": id,
        "controller.quorum.voters": ",".join(f"{n.id}@{HOST}:{n.controller_port}" for n in state.nodes),
        "listeners": listeners,
        "advertised.listeners": listeners,
        "controller.listener.names": "CONTROLLER",
        "inter.broker.listener.name": "PLAINTEXT",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
        "log.dirs": "data",
    }


def _replication(nodes: int) -> dict[str, object]:
    factor, in_sync = (3, 2) if nodes >= 3 else (1, 1)
    return {
        "default.replication.factor": factor,
        "min.insync.replicas": in_sync,
        "offsets.topic.replication.factor": factor,
        "transaction.state.log.replication.factor": factor,
        "transaction.state.log.min.isr": in_sync,
        "share.coordinator.state.topic.replication.factor": factor,
        "share.coordinator.state.topic.min.isr": in_sync,
    }


def _limits() -> dict[str, object]:
    return {
        "message.max.bytes": LARGEST_RECORD,
        "replica.fetch.max.bytes": LARGEST_RECORD,
        "offsets.topic.num.partitions": 4,
        "transaction.state.log.num.partitions": 4,
        "num.network.threads": 2,
        "num.io.threads": 2,
        "log.cleaner.dedupe.buffer.size": 4 * 2**20,
        "auto.create.topics.enable": "false",
    }


def _pace() -> dict[str, object]:
    return {
        "group.initial.rebalance.delay.ms": 0,
        "group.min.session.timeout.ms": 1000,
        "log.cleaner.backoff.ms": 500,
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": 1000,
        # a killed node's registration must lapse before it may come back: 9 s by default, 13 to 15 s to be ready
        "broker.session.timeout.ms": 3000,
        "broker.heartbeat.interval.ms": 500,
    }
