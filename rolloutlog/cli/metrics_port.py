"""`--metrics-port`: a service's numbers over HTTP, as Prometheus reads them (design/commands#metrics).

Guarantees: any GET is answered with all numbers, as they are then or were last told; a client that asks for nothing, or
for too much, is let go and hinders nobody. Leaves out: what is counted, TLS, and who may ask.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from rolloutlog.contract.errors import SettingsError

T = TypeVar("T")
PREFIX = "rolloutlog"
PATIENCE_S = 5.0
TYPE = "text/plain; version=0.0.4; charset=utf-8"


@dataclass(slots=True)
class Metrics:
    """Numbers by name; one that is told by several words has a label `by`. What counts up ends in `_total`."""

    numbers: dict[tuple[str, str], float] = field(default_factory=dict[tuple[str, str], float])

    def set(self, name: str, value: float | None, by: str = "") -> None:
        """A number as it is now; None: it isn't known."""
        self.numbers[name, by] = math.nan if value is None else value

    def add(self, name: str, value: float, by: str = "") -> None:
        """More of what is counted."""
        self.numbers[name, by] = self.numbers.get((name, by), 0) + value

    def add_each(self, name: str, counts: Mapping[Any, float]) -> None:
        """More of each."""
        for by, value in counts.items():
            self.add(name, value, str(by))

    def text(self) -> str:
        """In the text format of Prometheus."""
        lines: list[str] = []
        told = set[str]()
        for (name, by), value in sorted(self.numbers.items()):
            if name not in told:
                told.add(name)
                lines.append(f"# TYPE {PREFIX}_{name} {'counter' if name.endswith('_total') else 'gauge'}")
            label = '{by="' + _escaped(by) + '"}' if by else ""
            lines.append(f"{PREFIX}_{name}{label} {'NaN' if math.isnan(value) else f'{value:.17g}'}")
        return "".join(f"{one}\n" for one in lines)


async def exposed(
    port: int | None, metrics: Metrics, service: Coroutine[Any, Any, T], look: Callable[[], None] = lambda: None
) -> T:
    """Run a service while its numbers can be had on that port; None: nowhere. `look` brings them up to date when they
    are
    asked for. Raises SettingsError for a port in use."""
    if port is None:
        return await service

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(PATIENCE_S):
                await reader.readuntil(b"\r\n\r\n")
                look()
                body = metrics.text().encode()
                head = f"HTTP/1.1 200 OK\r\nContent-Type: {TYPE}\r\nContent-Length: {len(body)}\r\nConnection: close"
                writer.write(f"{head}\r\n\r\n".encode() + body)
                await writer.drain()
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            return
        finally:
            writer.close()

    try:
        server = await asyncio.start_server(answer, port=port)
    except OSError as error:
        service.close()
        raise SettingsError(f"no metrics on port {port}: {error.strerror or error}", "choose another port") from error
    async with server:
        return await service


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
