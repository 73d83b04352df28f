"""A stack of compose files that a test owns: its own project, port, volumes and folder of runs.

Guarantees: nothing of another project is touched, and `remove` leaves no container, network, volume or image behind.
Leaves out: waiting for what the services do (`deadline`).
"""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from rolloutlog.broker.process.ports import free_ports

ROOT = Path(__file__).parents[2]
STARTS_S = 180
BUILDS_S = 300
STOPS_S = 120
ANSWERS_S = 60
PROVEN_NO, UNDECIDED = 1, 4
"""Exit codes with which the command line still answers (design/commands#exit-codes)."""


@dataclass(slots=True)
class Stack:
    """One project of compose. `runs` is the folder that the importer sees as /runs; `settings` are variables; `files`
    are those of compose where compose.yaml isn't all."""

    runs: Path
    settings: dict[str, str] = field(default_factory=dict[str, str])
    files: tuple[str, ...] = ()
    project: str = field(default_factory=lambda: f"rolloutlog-test-{secrets.token_hex(4)}")
    port: int = field(default_factory=lambda: free_ports(1)[0])

    @property
    def environment(self) -> dict[str, str]:
        """What compose.yaml and the command line read; none of the caller's own settings."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith("ROLLOUTLOG_")}
        return (
            kept
            | self.settings
            | {
                "COMPOSE_PROJECT_NAME": self.project,
                "KAFKA_PORT": str(self.port),
                "RUNS": str(self.runs),
                "SERVICES_IMAGE": f"rolloutlog-services:{self.project}",
                "LIVE_IMAGE": f"rolloutlog-live:{self.project}",
            }
        )

    def build(self) -> None:
        """The image of the services."""
        self.compose("build", timeout_s=BUILDS_S)

    def up(self, *more: str) -> None:
        """Start what isn't running; returns once Kafka serves and the topics are there."""
        self.compose("up", "--detach", *more, timeout_s=STARTS_S)

    def down(self) -> None:
        """Stop and remove the containers; the volumes stay."""
        self.compose("down", timeout_s=STOPS_S)

    def remove(self) -> None:
        """Everything of this project goes, the data too."""
        self.compose("--profile", "*", "down", "--volumes", "--remove-orphans", timeout_s=STOPS_S)
        images = [self.environment[name] for name in ("SERVICES_IMAGE", "LIVE_IMAGE")]
        run("docker", "image", "rm", "--force", *images, timeout_s=STOPS_S)

    def containers(self, service: str) -> list[str]:
        """Ids of the running containers of a service."""
        return self.compose("ps", "--quiet", service).split()

    def imports(self, path: str) -> int:
        """Run the importer to its end; returns the number of rollouts that were new."""
        report = orjson.loads(self.compose("run", "--rm", "-T", "importer", path, "--json", timeout_s=STARTS_S))
        return sum(era["imported"] for era in report["eras"].values())

    def rolloutlog(self, *command: str) -> list[Any]:
        """What the command line on this machine prints with --json, over the published port, good or bad news."""
        program = str(Path(sys.executable).with_name("rolloutlog"))
        text = run(
            program, *command, "--json", "-b", f"localhost:{self.port}",
            environment=self.environment, folder=self.runs, codes=(0, PROVEN_NO, UNDECIDED),
        )  # fmt: skip
        return [orjson.loads(line) for line in text.splitlines()]

    def compose(self, *arguments: str, timeout_s: float = ANSWERS_S) -> str:
        """What `docker compose` prints; fails with what it says."""
        files = [word for file in self.files for word in ("--file", file)]
        words = ("docker", "compose", *files, *arguments)
        return run(*words, environment=self.environment, folder=ROOT, timeout_s=timeout_s)


def run(
    *command: str, environment: dict[str, str] | None = None, folder: Path = ROOT, timeout_s: float = ANSWERS_S,
    codes: tuple[int, ...] = (0,),
) -> str:  # fmt: skip
    """Output of a program that must end in time, with one of `codes`; if it doesn't, its children end with it."""
    pipe = subprocess.PIPE
    with subprocess.Popen(
        command, cwd=folder, env=environment, stdout=pipe, stderr=pipe, text=True, start_new_session=True
    ) as process:
        try:
            said, complained = process.communicate(timeout=timeout_s)
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)  # `docker` leaves the work to a child
            raise
    if process.returncode not in codes:
        raise AssertionError(f"{' '.join(command)} ended with {process.returncode}\n{said}\n{complained}")
    return said
