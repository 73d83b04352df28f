"""Kafka's own two programs as command lines: the formatter of a data folder, and the server.

Guarantees: both run in the node's folder on the pinned Java and jars. Leaves out: who waits for the server.
"""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rolloutlog.broker.java import environment
from rolloutlog.broker.node_folder import NodeFolder
from rolloutlog.contract.errors import BrokerFailed

FAST_START = "-XX:TieredStopAtLevel=1"  # half the CPU of a start; a slower server under load
SERVER_JVM = ("-Xmx512m", "-Xms128m", "-XX:+UseSerialGC", "-XX:+ExitOnOutOfMemoryError")
FORMAT_SECONDS = 60


@dataclass(frozen=True, slots=True)
class Kafka:
    """The programs of one installation: Java, jars, and whether the server is to start fast or to run fast."""

    java: Path
    jars: Sequence[Path]
    fast_start: bool

    def server(self, folder: NodeFolder) -> list[str]:
        """The command that serves the node of `folder`."""
        options = [*SERVER_JVM, folder.marker, *([FAST_START] if self.fast_start else [])]
        return self._command(folder, options, "kafka.Kafka", "server.properties")

    def format(self, folder: NodeFolder, cluster_id: str) -> None:
        """Make the node's data folder that of `cluster_id` (1 s)."""
        arguments = ["format", "--ignore-formatted", "-t", cluster_id, "-c", "server.properties"]
        done = subprocess.run(
            self._command(folder, [FAST_START], "kafka.tools.StorageTool", *arguments),
            cwd=folder.path,
            env=environment(),
            capture_output=True,
            text=True,
            timeout=FORMAT_SECONDS,
            check=False,
        )
        if done.returncode != 0 or folder.identity() is None:
            said = (done.stderr or done.stdout).strip().splitlines() or ["nothing was said"]
            raise BrokerFailed(f"{folder.data} can't be formatted: {said[0]}", "is there room on that disk?")

    def _command(self, folder: NodeFolder, options: list[str], program: str, *arguments: str) -> list[str]:
        common = ("-Dlog4j2.configurationFile=log4j2.xml", "-Djava.net.preferIPv4Stack=true", "-XX:-UsePerfData")
        scratch = f"-Djava.io.tmpdir={folder.scratch}"
        classpath = ":".join(str(jar) for jar in self.jars)
        return [str(self.java), *common, scratch, *options, "-cp", classpath, program, *arguments]
