"""The recorded run that comes with the package: 16 rollouts of 4 groups, of era E4, 12 of them trained.

Guarantees: it is there wherever the package is. Leaves out: importing it (`import_service`).
"""

from __future__ import annotations

from pathlib import Path


def demo_run() -> Path:
    """The run's folder, as its trainer left it; made with verifiers 0.4.0."""
    return Path(__file__).parent / "demo_run"
