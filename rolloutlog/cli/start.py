"""Where the command `rolloutlog` starts.

Guarantees: Ctrl-C while the command's modules are still being imported ends it as it does later, with 130 and without a
traceback; one that is ignored, as in the background of a script, stays ignored. Leaves out: everything after that
(`rolloutlog.cli.main`).
"""

from __future__ import annotations

import os
import signal
from types import FrameType

SIGNALLED = 128
"""What shells add to a signal's number; `signal_codes` isn't there yet."""


def main() -> None:
    """Import the command line, then run it."""
    before = signal.getsignal(signal.SIGINT)
    if before is signal.default_int_handler:
        signal.signal(signal.SIGINT, _leave)
    from rolloutlog.cli import main as command

    signal.signal(signal.SIGINT, before)
    command.main()


def _leave(number: int, frame: FrameType | None) -> None:
    os._exit(SIGNALLED + number)
