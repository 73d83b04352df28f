"""Which processes a live loop is made of, and in which order they end (design/live-loop#run).

Guarantees: pure; each is a command that a person could type. Leaves out: starting them (`supervision`).
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

from rolloutlog.contract.errors import SettingsError
from rolloutlog.contract.settings import Settings

ONE_WORKERS = "openai"
"""An engine whose weights only one worker may change, or tokens would be said to be of another policy."""


REST_S = 10.0
"""Where the data has an end, the rest below a batch is trained once nothing came for so long."""


class ServiceRole(IntEnum):
    """What a process is, in the order in which they end: nobody ends before those that give it work."""

    FEEDER = 1
    WORKER = 2
    BUFFER = 3
    TRAINER = 4


@dataclass(slots=True, frozen=True)
class Service:
    """One process, and the `command` that starts it."""

    name: str
    role: ServiceRole
    command: tuple[str, ...]

    @classmethod
    def of(cls, name: str, role: ServiceRole, *words: str) -> Service:
        """That of a command of ours, by the interpreter that runs us; `words` are what comes after `rolloutlog`."""
        return cls(name, role, (sys.executable, "-m", "rolloutlog.cli.main", *words))


def services_of(settings: Settings, flags: Sequence[str], to_step: int | None) -> list[Service]:
    """All of them; `flags` say which run and which settings, `to_step` after which train step the trainer ends.

    Raises SettingsError.
    """
    loop = settings.loop
    if not loop.environments:
        raise SettingsError(
            "loop.environments names none",
            '`environments = ["reversal"]` under `[loop]` in rolloutlog.toml does; docs/train-live.md has a whole file',
        )
    if len(set(loop.environments)) < len(loop.environments):
        raise SettingsError(f"loop.environments names one twice: {', '.join(loop.environments)}")
    if unknown := loop.tasks.keys() - set(loop.environments):
        raise SettingsError(f"loop.tasks has a file for {min(unknown)}, which loop.environments doesn't name")
    if loop.engine == ONE_WORKERS and loop.workers > 1:
        raise SettingsError(
            f"loop.workers is {loop.workers}, and each would change the weights of the one server of worker.engine",
            "a server belongs to one worker: set loop.workers = 1, and loop.concurrency to as much as it takes",
        )
    ends = [] if to_step is None else ["--to-step", str(to_step)]
    ends += [] if loop.epochs is None else ["--short-after", f"{REST_S:g}"]
    feeders = enumerate(loop.environments)
    return [
        Service.of("trainer", ServiceRole.TRAINER, "train", "run", *ends, *flags),
        *(Service.of(f"buffer-{n}", ServiceRole.BUFFER, "buffer", "run", *flags) for n in range(loop.buffers)),
        *(Service.of(f"worker-{n}", ServiceRole.WORKER, *_worker(settings, n), *flags) for n in range(loop.workers)),
        *(Service.of(f"feeder-{n}", ServiceRole.FEEDER, *_feeder(settings, env), *flags) for n, env in feeders),
    ]


def _worker(settings: Settings, number: int) -> list[str]:
    loop = settings.loop
    words = ["worker", "run", "--name", f"worker-{number}", "--concurrency", str(loop.concurrency)]
    words += [word for env in loop.environments for word in ("--environment", env)]
    return words if loop.engine is None else [*words, "--engine", loop.engine]


def _feeder(settings: Settings, env: str) -> list[str]:
    loop = settings.loop
    words = ["feed", "--environment", env, "--seed", str(loop.seed)]
    if len(loop.environments) > 1 and not settings.trainer.weights:
        words += ["--share", f"{1 / len(loop.environments):g}"]
    if env in loop.tasks:
        words += ["--tasks", loop.tasks[env]]
    if loop.epochs is not None:
        words += ["--epochs", str(loop.epochs)]
    if loop.eval_every is not None:
        words += ["--eval-every", str(loop.eval_every), "--eval-tasks", str(loop.eval_tasks)]
    return words
