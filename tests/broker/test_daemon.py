"""A detached broker is found again by its state file, and by nothing else."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from rolloutlog.broker import BrokerState, EmbeddedKafka, down, find, logs, reset, up
from rolloutlog.broker.process.data_folder import BrokerFolder
from rolloutlog.broker.process.node_process import identify
from rolloutlog.broker.process.state import NodeState, ProcessState
from rolloutlog.contract.errors import BrokerFailed, SettingsError
from tests.broker.processes import process_of

pytestmark = pytest.mark.broker

UP = "import sys; from rolloutlog.broker import up; print(up(sys.argv[1]).model_dump_json())"


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder whose name would break a properties file, if it stood in one."""
    folder = tmp_path_factory.mktemp("dæmon, with a = sign")
    yield folder
    down(folder)


@pytest.fixture(scope="module")
def twice(data_dir: Path) -> list[BrokerState]:
    """What two starts at once, in two processes, say of the broker."""
    starts = [subprocess.Popen([sys.executable, "-c", UP, data_dir], stdout=subprocess.PIPE) for _ in range(2)]
    return [BrokerState.model_validate_json(start.communicate()[0]) for start in starts]


def test_two_starts_on_one_folder_find_each_other(twice: list[BrokerState], data_dir: Path) -> None:
    first, second = twice
    assert first == second
    assert find(data_dir) == first
    servers = [p for p in psutil.process_iter(["cmdline"]) if marker(data_dir) in (p.info["cmdline"] or [])]
    assert [server.pid for server in servers] == [process_of(first).pid]


def test_it_outlives_the_process_that_started_it(twice: list[BrokerState]) -> None:
    assert process_of(twice[0]).ppid() in {1, *ancestors_of_orphans()}


def test_an_embedded_broker_uses_it_and_leaves_it(twice: list[BrokerState], data_dir: Path) -> None:
    with EmbeddedKafka(data_dir) as found:
        assert found.bootstrap_servers == twice[0].bootstrap_servers
        with pytest.raises(BrokerFailed, match="aren't ours to stop"):
            found.kill(1)
    assert find(data_dir) == twice[0]


def test_a_running_broker_keeps_its_size_and_port(twice: list[BrokerState], data_dir: Path) -> None:
    with pytest.raises(SettingsError, match=r"has 1 node\(s\), not 3"):
        up(data_dir, nodes=3)
    with pytest.raises(SettingsError, match=f"runs on port {twice[0].node(1).port}, not 21000"):
        up(data_dir, port=21_000)
    with pytest.raises(BrokerFailed, match="is running"):
        reset(data_dir)


def test_its_logs_are_there(twice: list[BrokerState], data_dir: Path) -> None:
    assert "Kafka Server started" in "".join(path.read_text() for path in logs(data_dir))


def test_data_of_another_cluster_are_refused(twice: list[BrokerState], data_dir: Path) -> None:
    assert down(data_dir)
    meta = BrokerFolder.of(data_dir).node(1).data / "meta.properties"
    own = meta.read_text()
    meta.write_text(own.replace(twice[0].cluster_id, "AAAAAAAAQACAAAAAAAAAAA"))
    with pytest.raises(
        BrokerFailed, match=rf"of cluster AAAA\w+, but belongs to node 1 of cluster {twice[0].cluster_id}"
    ):
        up(data_dir)
    meta.write_text(own)


def test_it_starts_again_on_its_ports_and_moves_when_asked(twice: list[BrokerState], data_dir: Path) -> None:
    down(data_dir)
    state = up(data_dir, fast_start=True)
    assert (state.cluster_id, state.bootstrap_servers) == (twice[0].cluster_id, twice[0].bootstrap_servers)
    assert down(data_dir)
    assert not down(data_dir)
    assert find(data_dir) is None


def test_data_without_a_state_file_are_adopted(twice: list[BrokerState], data_dir: Path) -> None:
    down(data_dir)
    BrokerFolder.of(data_dir).state_file.unlink()
    assert up(data_dir, fast_start=True).cluster_id == twice[0].cluster_id


def test_reset_removes_the_broker_and_nothing_else(data_dir: Path) -> None:
    down(data_dir)
    (data_dir / "mine").touch()
    assert reset(data_dir)
    assert not reset(data_dir)
    assert [path.name for path in data_dir.iterdir()] == ["mine"]


@pytest.mark.pure
def test_a_stranger_with_the_pid_of_a_node_isn_t_the_broker(tmp_path: Path) -> None:
    """After a reboot pids are given anew."""
    folder = BrokerFolder.of(tmp_path)
    folder.make()
    folder.write(one_node(identify(psutil.Process().pid)))
    assert find(tmp_path) is None


@pytest.mark.pure
def test_a_state_file_of_another_shape_is_refused(tmp_path: Path) -> None:
    folder = BrokerFolder.of(tmp_path)
    folder.make()
    folder.state_file.write_text(json.dumps({"cluster_id": "x", "nodes": [], "surprise": 1}))
    with pytest.raises(BrokerFailed, match="can't be read"):
        find(tmp_path)


@pytest.mark.pure
def test_a_folder_that_can_t_be_made_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(BrokerFailed, match=r"file/broker can't be written: Not a directory"):
        up(tmp_path / "file")


def one_node(process: ProcessState | None) -> BrokerState:
    return BrokerState(cluster_id="x", nodes=(NodeState(id=1, port=21_000, controller_port=21_001, process=process),))


def marker(data_dir: Path) -> str:
    return BrokerFolder.of(data_dir).node(1).marker


def ancestors_of_orphans() -> set[int]:
    """Processes that take in orphans beside init (a container's, or a desktop's user manager)."""
    return {parent.pid for parent in psutil.Process().parents()}
