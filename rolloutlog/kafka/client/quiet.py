"""What aiokafka may log.

Guarantees: warnings and errors only; the same message at most once in ten seconds, since a client without a broker says
the same thing ten times a second; a rebalance, which is normal, says nothing. Leaves out: our own log.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Generator
from contextlib import contextmanager

from rolloutlog.kafka.client.inner_parts import REBALANCING

PREFIX = "aiokafka"
REPEAT_S = 10.0
NORMAL = (REBALANCING,)


class Repeats(logging.Filter):
    """Lets a message pass when it wasn't logged lately; other arguments don't make it another one."""

    def __init__(self) -> None:
        super().__init__()
        self._logged: dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """True to log it."""
        text, now = str(record.msg), time.monotonic()
        if text in NORMAL or now - self._logged.get(text, -REPEAT_S) < REPEAT_S:
            return False
        self._logged[text] = now
        return True


@contextmanager
def silenced() -> Generator[None]:
    """Let the client log nothing for a while, in which the caller reports what came of it himself."""
    logger = logging.getLogger(PREFIX)
    before = logger.disabled
    logger.disabled = True
    try:
        yield
    finally:
        logger.disabled = before


def quiet_clients() -> None:
    """Install it on every logger of aiokafka, once; a filter of a parent doesn't see what its children log."""
    for name in [PREFIX, *(name for name in logging.root.manager.loggerDict if name.startswith(PREFIX + "."))]:
        logger = logging.getLogger(name)
        logger.setLevel(logging.WARNING)
        if not any(isinstance(each, Repeats) for each in logger.filters):
            logger.addFilter(Repeats())
