"""Where the command `rolloutlog` starts.

Guarantees: Ctrl-C and SIGTERM while the command's modules are still being imported end it as they do later: with 130
and without a traceback, and a service that SIGTERM ends with 0; one that is ignored, as in the background of a script,
stays ignored. Leaves out: everything after that (`rolloutlog.cli.main`).
"""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType

SIGNALLED = 128
"""What shells add to a signal's number; `signal_codes` isn't there yet."""
SERVICES = frozenset({"buffer", "feed", "run", "train", "worker", "--follow", "-f"})
"""Words of services' commands."""


def main() -> None:
    """Import the command line, then run it."""
    before = signal.getsignal(signal.SIGINT)
    if before is signal.default_int_handler:
        signal.signal(signal.SIGINT, _leave)
    if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, _leave)
    from rolloutlog.cli import main as command

    signal.signal(signal.SIGINT, before)
    command.main()


def ends_well(arguments: list[str]) -> bool:
    """Whether these are the words of a command that SIGTERM ends with 0."""
    return not SERVICES.isdisjoint(arguments)


def _leave(number: int, frame: FrameType | None) -> None:
    is_well = number == signal.SIGTERM and ends_well(sys.argv[1:])
    os._exit(0 if is_well else SIGNALLED + number)
