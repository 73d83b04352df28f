"""The broker that a command speaks to.

Guarantees: it is found as `Settings.load` finds it, and where two addresses are named the command says which it takes.
Leaves out: where settings come from (`rolloutlog.settings_sources`).
"""

from __future__ import annotations

from pathlib import Path

from rolloutlog.cli.screen.output import note
from rolloutlog.contract.errors import BrokerUnreachable
from rolloutlog.contract.settings import Settings
from rolloutlog.settings_sources import address_of


def with_broker(settings: Settings, data_dir: Path | None = None) -> Settings:
    """The same settings with an address: the one given, else that of the `command_config`, else the running broker of
    the data folder (design/brokers#which).

    Where the file names another address than the one given it says so. Raises BrokerUnreachable where there is none: a
    remote worker must never write to a private broker.
    """
    from rolloutlog.kafka.client.properties import read_properties

    address = address_of(settings, data_dir)
    if address is None:
        raise BrokerUnreachable("no broker is configured, and none runs in the data folder")
    named = read_properties(settings.command_config).get("bootstrap.servers")
    if named not in (None, address):
        note(f"using {address}, not the bootstrap.servers of {settings.command_config}: {named}")
    return settings.model_copy(update={"bootstrap_servers": address})
