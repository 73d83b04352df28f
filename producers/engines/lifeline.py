"""A connection to a server on which nothing is ever said, and which ends with the server's process.

    line = await Lifeline.open("http://127.0.0.1:8000/v1", ended)

Guarantees: while it `is_alive` the process at its other end is the one that it was opened to, and `ended` is called
once when that is over, before an answer of a successor can be read: it was over before the successor could listen. The
system is asked to probe for a machine that went without a word. Leaves out: a proxy in between, whose life it is then.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable
from typing import Self
from urllib.parse import urlsplit

PROBE_S, PROBES = 2, 3
OPENS_S = 10.0
PORTS = {"http": 80, "https": 443}


class Lifeline(asyncio.Protocol):
    """One connection; `close` it."""

    def __init__(self, ended: Callable[[], None]) -> None:
        self._ended = ended
        self._transport: asyncio.BaseTransport | None = None

    @classmethod
    async def open(cls, url: str, ended: Callable[[], None]) -> Self:
        """One to the server of that URL. Raises OSError, TimeoutError."""
        parts = urlsplit(url)
        port = parts.port or PORTS[parts.scheme]
        async with asyncio.timeout(OPENS_S):
            _, line = await asyncio.get_running_loop().create_connection(
                lambda: cls(ended), parts.hostname or "", port, ssl=_unasked() if parts.scheme == "https" else None
            )
        return line

    @property
    def is_alive(self) -> bool:
        """Whether the process that it was opened to has lived without a break."""
        return self._transport is not None

    def close(self) -> None:
        """Let go of it; `ended` isn't called."""
        transport, self._transport = self._transport, None
        if transport is not None:
            transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        opened: socket.socket = transport.get_extra_info("socket")
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in (("TCP_KEEPIDLE", PROBE_S), ("TCP_KEEPINTVL", PROBE_S), ("TCP_KEEPCNT", PROBES)):
            if hasattr(socket, name):  # the first has another name on macOS, where two hours are the system's
                opened.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)

    def eof_received(self) -> None:
        self._end()

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        self._end()

    def _end(self) -> None:
        if self.is_alive:
            self.close()
            self._ended()


def _unasked() -> ssl.SSLContext:
    """TLS as the server expects it; who it is, is asked by those that tell it something."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context
