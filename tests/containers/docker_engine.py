"""Whether this machine can run containers, and if not, why.

Guarantees: an answer within seconds, with the reason that a skipped test shows. Leaves out: installing anything.
"""

from __future__ import annotations

import shutil
import subprocess

ANSWER_S = 20


def why_not() -> str | None:
    """What is missing: the program, an engine that answers, or its compose plugin; None where all is there."""
    if shutil.which("docker") is None:
        return "there is no docker on this machine"
    for command, wanted in (
        (["docker", "version"], "no Docker engine answers"),
        (["docker", "compose", "version"], "docker has no compose plugin"),
    ):
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=ANSWER_S, check=False)
        except subprocess.TimeoutExpired:
            return f"{wanted} within {ANSWER_S} s"
        if done.returncode:
            return f"{wanted}: {done.stderr.strip()[-200:]}"
    return None
