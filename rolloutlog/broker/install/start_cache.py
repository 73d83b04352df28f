"""Java's start cache: the classes of a broker's start, loaded and linked ahead (JEP 483).

Guarantees: one that was made with another Java or other jars has another name; Java passes over one that it can't use.
It halves the CPU of a start. Leaves out: making one (`training_run`), which nobody has to.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

from rolloutlog.broker.install.jars import cache_dir


def start_cache(java: Path, jars: Sequence[Path]) -> Path:
    """Where that of this Java and these jars lies, whether it is there or not. Raises OSError."""
    runtime = java.parent.parent
    digest = hashlib.blake2b((runtime / "release").read_bytes(), digest_size=8)
    for path in (runtime / "lib" / "modules", *jars):  # as Java looks at them; environments share their runtime's files
        found = path.stat()
        digest.update(f"{path.name} {found.st_size} {found.st_mtime_ns}\n".encode())
    return cache_dir() / "start" / f"{digest.hexdigest()}.aot"
