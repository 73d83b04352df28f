"""Exit codes after a signal, as shells count them: 128 and its number.

Guarantees: importing it loads nothing, so that it is there before the command is. Leaves out: other endings
(`exit_code`).
"""

from __future__ import annotations

INTERRUPTED = 130
"""Ctrl-C."""
TERMINATED = 143
"""SIGTERM."""
