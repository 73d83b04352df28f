"""Clients that close at once.

Guarantees: closing waits for no answer that nobody wants: over TLS a connection is closed in order only when the
broker reads from it again, which it doesn't while it holds back the answer to a fetch (up to half a second). What must
arrive has been acknowledged by then, since producers are flushed, and groups left, before their client closes. Leaves
out: when to close.
"""

from __future__ import annotations

from typing import Any, TypeVar

C = TypeVar("C")


def close_at_once(client: C) -> C:
    """The same client, a consumer, producer, admin or bare one, whose connections are dropped when it closes."""
    # there is no public way to a client's connections
    inner: Any = getattr(client, "_client", None) or getattr(client, "client", client)
    close = inner.close

    async def dropped() -> None:
        for connection in list(inner._conns.values()):
            if connection._writer is not None:
                connection._writer.transport.abort()
        await close()

    inner.close = dropped
    return client
