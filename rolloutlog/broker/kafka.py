"""Kafka's own two programs as command lines: the formatter of a data folder, and the server.

Guarantees: both run in the node's folder on the pinned Java and jars. Leaves out: who waits for them.
"""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rolloutlog.broker.folder import NodeFolder
from rolloutlog.broker.java import environment
from rolloutlog.contract.errors import BrokerFailed

COMMON = ("-Dlog4j2.configurationFile=log4j2.xml", "-Djava.net.preferIPv4Stack=true", "-XX:-UsePerfData")
FAST_START = ("-XX:TieredStopAtLevel=1",)  # half the CPU of a start, a slower server under load


@dataclass(frozen=True, slots=True)
class Kafka:
    """The programs of one installation: Java, jars, and how the server's JVM is set up."""

    java: Path
    jars: Sequence[Path]
    fast_start: bool
    heap: str = "512m"

    def server(self, folder: NodeFolder) -> list[str]:
        """The command that serves the node of `folder`."""
        jvm = [f"-Xmx{self.heap}", "-Xms128m", "-XX:+UseSerialGC", "-XX:+ExitOnOutOfMemoryError", folder.marker]
        return self._command([*jvm, *(FAST_START if self.fast_start else ())], "kafka.Kafka", "server.properties")

    def format(self, folder: NodeFolder, cluster_id: str) -> None:
        """Make the node's data folder that of `cluster_id` (1 s)."""
        arguments = ["format", "--ignore-formatted", "-t", cluster_id, "-c", "server.properties"]
        command = self._command(list(FAST_START), "kafka.tools.StorageTool", *arguments)
        done = subprocess.run(command, cwd=folder.path, env=environment(), capture_output=True, text=True, check=False)
        if done.returncode != 0 or not folder.is_formatted():
            said = (done.stderr or done.stdout).strip().splitlines() or ["nothing"]
            raise BrokerFailed(f"{folder.data} can't be formatted: {said[-1]}", "is there room on that disk?")

    def _command(self, jvm: list[str], program: str, *arguments: str) -> list[str]:
        classpath = ":".join(str(jar) for jar in self.jars)
        return [str(self.java), *COMMON, *jvm, "-cp", classpath, program, *arguments]
