"""Ports of a broker: below the system's own range, and free."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from rolloutlog.broker.process.data_folder import BrokerFolder
from rolloutlog.broker.process.plan import choose_broker
from rolloutlog.broker.process.ports import HOST, free_ports, is_free
from rolloutlog.contract.errors import BrokerFailed, SettingsError

EPHEMERAL = 32_768


def test_chosen_ports_are_free_different_and_below_the_ephemeral_range() -> None:
    ports = free_ports(6, taken=[20_000])
    assert len(set(ports)) == 6
    assert all(is_free(port) and port < EPHEMERAL and port != 20_000 for port in ports)


def test_a_port_that_somebody_listens_on_isn_t_free() -> None:
    with socket.create_server((HOST, 0)) as server:
        port = server.getsockname()[1]
        assert not is_free(port)
    assert is_free(port)


@pytest.mark.parametrize("port", [-1, 0, 65_535, 70_000])
def test_a_port_that_can_t_be_is_refused(port: int, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="can't be the first port"):
        choose_broker(BrokerFolder.of(tmp_path), None, 3, port)


def test_three_nodes_take_three_ports_in_a_row(tmp_path: Path) -> None:
    state = choose_broker(BrokerFolder.of(tmp_path), None, 3, 21_000)
    assert state.bootstrap_servers == "127.0.0.1:21000,127.0.0.1:21001,127.0.0.1:21002"
    assert len({node.controller_port for node in state.nodes}) == 3


@pytest.mark.broker
def test_a_taken_port_is_named(tmp_path: Path) -> None:
    """It needs Java and the jars, but starts nothing."""
    from rolloutlog.broker import up

    with socket.create_server((HOST, 0)) as server:
        port = server.getsockname()[1]
        with pytest.raises(BrokerFailed, match=f"port {port} of this broker is taken by another program"):
            up(tmp_path, port=port)
