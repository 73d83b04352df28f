"""A pytest plugin: a real Kafka for tests of your own workers.

Guarantees: one broker a session, started when the first test asks for it and ended with pytest, however that ends.
Leaves out: topics and clean-up between tests; give each test a namespace of its own.

In a conftest.py: `pytest_plugins = ["rolloutlog.broker.testing"]`. A test that takes `kafka_broker` connects
to `kafka_broker.bootstrap_servers`. It needs the extra [broker], and a network the first time on a machine.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from rolloutlog.broker import EmbeddedKafka


@pytest.fixture(scope="session")
def kafka_broker() -> Iterator[EmbeddedKafka]:
    """The session's broker: one node of Apache Kafka with an empty log."""
    from rolloutlog.broker import EmbeddedKafka

    with EmbeddedKafka() as broker:
        yield broker
