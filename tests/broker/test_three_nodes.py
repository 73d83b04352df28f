"""Three nodes make a quorum that goes on when one of them is killed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from rolloutlog.broker import EmbeddedKafka
from rolloutlog.broker.process import frames as wire
from tests.broker import log_client

pytestmark = pytest.mark.chaos


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedKafka]:
    with EmbeddedKafka(tmp_path_factory.mktemp("three"), nodes=3) as three:
        log_client.create_topic(three.bootstrap_servers, replicas=3)
        yield three


def test_every_node_knows_every_other(cluster: EmbeddedKafka) -> None:
    assert [wire.metadata(node.port, 5).nodes for node in cluster.state.nodes] == [frozenset({1, 2, 3})] * 3


def test_a_killed_node_is_missed_by_nobody_and_comes_back(cluster: EmbeddedKafka) -> None:
    log_client.write(cluster.bootstrap_servers, b"with three")
    cluster.kill(2)
    log_client.write(cluster.bootstrap_servers, b"with two")
    cluster.start(2)
    assert wire.metadata(cluster.state.node(2).port, 5).nodes == {1, 2, 3}
    cluster.kill(1)
    assert log_client.read(cluster.bootstrap_servers, 2) == [b"with three", b"with two"]
    cluster.start(1)


def test_all_killed_at_once_come_back_with_their_data(cluster: EmbeddedKafka, tmp_path: Path) -> None:
    expected = log_client.read(cluster.bootstrap_servers, 2)
    data_dir = cluster.data_dir
    cluster.close()
    with EmbeddedKafka(data_dir) as again:
        assert len(again.state.nodes) == 3
        assert log_client.read(again.bootstrap_servers, 2) == expected
