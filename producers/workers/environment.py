"""The seam to what a rollout is made in: it prompts, runs tools, scores, and answers with what was sampled.

Guarantees: an environment is one method; how it ends says what is published. Leaves out: sampling (`engine`) and the
log (`member_runner`).

- it returns a `Trajectory`: `rollout.completed`, with its reward (of a derivation that scores, that one's: `own_score`)
  or, without one, pending until it is annotated; its record says the seed's `task`, unless it has its own, and
  `resumed_from` where it begins with the prefix that it was given;
- it raises `Refused`: it can't restore the state that the seed resumes at (`seed.snapshot` names one that was kept),
  and its members are cancelled;
- it raises `Paused`: `rollout.aborted` with the prefix that it gives, from which another worker resumes;
- it raises anything else: `rollout.failed` with that error.

When a worker must stop, its rollouts are cancelled (`asyncio.CancelledError`): an environment that can hand over its
prefix catches that and raises `Paused(prefix)`.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from rolloutlog.contract.errors import SettingsError
from rolloutlog.contract.events.seeds import Ask, Seed
from rolloutlog.contract.policies import Policy
from rolloutlog.contract.record.slot import Slot
from rolloutlog.contract.record.trajectory import Trajectory
from rolloutlog.producers.workers.engine import Engine


@dataclass(slots=True, frozen=True)
class Dispatch:
    """One member to make: what the seed asks for, and the policy that was current when it was dispatched.

    The seed has task and messages, whatever its kind: one that asks for members has those of its group's origin seed.
    """

    seed: Seed
    ask: Ask
    slot: Slot
    policy: Policy | None
    """None where no trainer has published yet."""
    prefix: Trajectory | None = None
    """What an aborted attempt had sampled, for a seed of kind resume."""


class Environment(Protocol):
    """Makes rollouts; several at once. One that is an async context manager is opened and closed by its worker."""

    async def rollout(self, dispatch: Dispatch, engine: Engine | None) -> Trajectory:
        """One attempt of one member."""
        ...


@runtime_checkable
class Choosing(Protocol):
    """An environment that makes rollouts of some seeds only; one without this makes those of any."""

    def has(self, name: str) -> bool:
        """Whether it makes those of seeds whose `env` is this."""
        ...


class Refused(Exception):
    """The environment can't restore the state that the seed resumes at, such as one that is gone."""


class Paused(Exception):
    """The rollout is given up for now; `prefix` is what it has sampled."""

    def __init__(self, prefix: Trajectory | None = None) -> None:
        super().__init__("paused")
        self.prefix = prefix


def load(path: str, *methods: str) -> Any:
    """The object at `module:name`, which has those methods; a class is called without arguments.

    Raises SettingsError.
    """
    module, _, name = path.partition(":")
    try:
        found: Any = getattr(importlib.import_module(module), name)
        made: Any = found() if isinstance(found, type) else found
    except (Exception, SystemExit) as error:  # it is foreign code, which may also leave the program
        said = f"{path!r} can't be loaded: {type(error).__name__}: {error}"
        raise SettingsError(said, "give it as module:name, importable here") from error
    if missing := [method for method in methods if not callable(getattr(made, method, None))]:
        raise SettingsError(f"{path!r} has no method {missing[0]}", "docs/run-workers.md says what it needs")
    return made
