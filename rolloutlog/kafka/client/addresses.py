"""Addresses of brokers, as `bootstrap_servers` lists them.

Guarantees: each is `host:port`, `host`, or an IPv6 address; what can't be one is refused before anybody is asked.
Leaves out: whether somebody answers there.
"""

from __future__ import annotations

import re

from rolloutlog.contract.errors import SettingsError

HOST, IPV6 = r"\[[:.%\w]+\]|[^\s:/\[\]@]+", r"(?:[0-9A-Fa-f]*:){2,}[0-9A-Fa-f.]*"
ADDRESS = re.compile(rf"(?:{HOST})(?::(?P<port>\d{{1,5}}))?|{IPV6}")
HIGHEST = 65535
EXAMPLE = "such as 127.0.0.1:9092, or several with commas between"


def checked_addresses(servers: str) -> str:
    """The list as it is. Raises SettingsError."""
    for address in servers.split(","):
        found = ADDRESS.fullmatch(address.strip())
        if found is None or not 0 < int(found["port"] or 1) <= HIGHEST:
            raise SettingsError(f"bootstrap_servers {servers!r} isn't host:port", EXAMPLE)
    return servers
