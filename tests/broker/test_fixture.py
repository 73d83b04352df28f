"""The fixture that users import to test their own workers."""

from __future__ import annotations

import pytest

from rolloutlog.broker import EmbeddedKafka
from rolloutlog.broker.process import frames as wire


@pytest.mark.broker
def test_the_fixture_is_a_ready_broker(kafka_broker: EmbeddedKafka) -> None:
    port = int(kafka_broker.bootstrap_servers.split(":")[1])
    assert wire.metadata(port, timeout=5).nodes == {1}
