"""Exit codes after a signal, as shells count them: 128 and its number.

Guarantees: a command that a signal ended says which. Leaves out: other endings (`exit_code`), and Ctrl-C before the
command is imported (`start`).
"""

from __future__ import annotations

INTERRUPTED = 130
"""Ctrl-C."""
TERMINATED = 143
"""SIGTERM."""
