"""Settings of `rolloutlog run`: which services it starts, and how many (design/live-loop#run).

Guarantees: everything that services need besides is in their own sections. Leaves out: starting them
(`rolloutlog.supervisor`).
"""

from __future__ import annotations

from pydantic import Field

from rolloutlog.contract.section import MOST, Section


class LoopSettings(Section):
    """The services of a live loop on this machine."""

    environments: list[str] = Field(default_factory=list[str])
    """Installed environments, or yours as MODULE:ATTR; each has a feeder, and workers have all."""
    tasks: dict[str, str] = Field(default_factory=dict[str, str])
    """Files of tasks by environment, as `feed --tasks` takes them; without one an environment makes its own."""
    engine: str | None = "torch"
    """What workers sample with: an installed engine, or yours as MODULE:ATTR; unset: environments sample themselves."""
    workers: int = Field(default=1, ge=1, le=1000)
    """Worker processes, half as many as there are partitions at most."""
    concurrency: int = Field(default=64, ge=1, le=MOST)
    """Members that run at once in each."""
    buffers: int = Field(default=1, ge=1, le=1000)
    """Buffer processes."""
    steps: int | None = Field(default=None, ge=1, le=MOST)
    """Train steps of one start, after which it ends; unset: it goes on until it is stopped."""
    seed: int = Field(default=0, ge=0, le=MOST)
    """Of environments' own tasks."""
    epochs: int | None = Field(default=None, ge=1, le=MOST)
    """How often all tasks are asked; unset: for ever."""
    eval_every: int | None = Field(default=None, ge=1, le=MOST)
    """Held-out tasks are asked after the first policy and after every so many; unset: never."""
    eval_tasks: int = Field(default=32, ge=1, le=MOST)
    """How many of each environment."""
    restarts: int = Field(default=5, ge=0, le=1000)
    """How often a service that died is started again within ten minutes, before the run ends."""
