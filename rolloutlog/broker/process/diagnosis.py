"""Why a node of the broker died, read from what it wrote.

Guarantees: one sentence that names the cause when it is a known one, else the node's last error line. Leaves out:
repairs.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from rolloutlog.broker.process.node_folder import NodeFolder

TAIL_BYTES = 256 * 1024
NEARLY_FULL_BYTES = 1024 * 1024  # Kafka writes less than this before it says so; then its log can't say it either

# the first that is found in the node's log or output wins
CAUSES = (
    ("No space left on device", "its disk is full ({folder})"),
    ("Disk quota exceeded", "the quota of its disk is used up ({folder})"),
    ("Read-only file system", "its disk can't be written ({folder})"),
    ("Permission denied", "it may not write {folder}"),
    ("Address already in use", "another program took its port"),
    ("Failed to acquire lock on file .lock", "another Kafka process works on its data ({folder})"),
    ("OutOfMemoryError", "it ran out of memory"),
    ("There is insufficient memory for the Java Runtime", "this machine has too little memory for it"),
    ("Too many open files", "it may not open more files (see `ulimit -n`)"),
)


def why(folder: NodeFolder) -> str:
    """The cause in words, to be read after "node 1 stopped: "."""
    text = tail(folder.output) + tail(folder.log)
    for sign, cause in CAUSES:
        if sign in text:
            return cause.format(folder=folder.path)
    if shutil.disk_usage(folder.path).free < NEARLY_FULL_BYTES:
        return f"its disk is full ({folder.path})"
    errors = re.findall(r"^.* (?:ERROR|FATAL) .*$|^Error: .*$|^Exception in thread.*$", text, re.MULTILINE)
    return f"it wrote {errors[-1].strip()!r}" if errors else "it was killed, or said nothing"


def tail(path: Path, size: int = TAIL_BYTES) -> str:
    """The last `size` bytes of a log as text; empty when there is none."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - size))
            return file.read().decode(errors="replace")
    except FileNotFoundError:
        return ""
