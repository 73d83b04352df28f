"""Offline buffers: frozen at a cut, read from a training script, and a run's seeds drawn again (design/buffer#offline).

Guarantees: pure parts stand in `rolloutlog.buffer.offline`; here is what reads the log and files. Leaves out: rollouts
as files of other tools (`rolloutlog.consumers.exporting`).
"""

from __future__ import annotations
