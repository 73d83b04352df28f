"""What can be no broker's address is bad use, not a broker that doesn't answer."""

from __future__ import annotations

import pytest

from rolloutlog.contract.errors import SettingsError
from rolloutlog.kafka.client.addresses import checked_addresses


@pytest.mark.parametrize(
    "servers",
    ["kafka", "kafka:9092", "127.0.0.1:1", "a:1,b:2", "a:1, b:2", "[::1]:9092", "::1", "my-host.test:65535"],
)
def test_hosts_and_ports_are_addresses(servers: str) -> None:
    assert checked_addresses(servers) == servers


@pytest.mark.parametrize(
    "servers",
    [
        "http://kafka:1",
        "kafka:x",
        "[::1",
        "kafka:99999",
        "kafka:0",
        "a:1,,b:2",
        "a b:1",
        "kafka:9092/",
        "u@a:1",
        ":9",
    ],
)
def test_what_isnt_one_is_refused_by_name(servers: str) -> None:
    with pytest.raises(SettingsError, match="isn't host:port"):
        checked_addresses(servers)
