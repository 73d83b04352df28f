"""Ports for the listeners of a broker.

Guarantees: ports below 32768, since above it the system hands them to outgoing connections (a broker's port was taken
that way, by a connection to itself). Leaves out: reserving. Between the test and the broker's own bind another
program may take a port; the start then fails and says so.
"""

from __future__ import annotations

import random
import socket
from collections.abc import Iterable

from rolloutlog.contract.errors import BrokerFailed

HOST = "127.0.0.1"
LOWEST, HIGHEST = 20_000, 32_000


def is_free(port: int) -> bool:
    """Whether a server could listen on `port` now; connections that linger there (TIME_WAIT) don't matter."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True


def free_ports(count: int, taken: Iterable[int] = ()) -> list[int]:
    """`count` free ports at random places, so that two starts at once rarely choose the same; none of `taken`."""
    candidates = [port for port in range(LOWEST, HIGHEST) if port not in set(taken)]
    random.shuffle(candidates)
    found: list[int] = []
    for port in candidates:
        if len(found) == count:
            break
        if is_free(port):
            found.append(port)
    if len(found) < count:
        raise BrokerFailed(f"no free port between {LOWEST} and {HIGHEST}", "stop programs that listen there")
    return found
