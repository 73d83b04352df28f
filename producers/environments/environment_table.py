"""The environments of a worker, chosen by each seed's `env` (design/live-loop#environments).

Guarantees: found by entry point `rolloutlog.environments` or given by name; one that isn't here is a typed error that
lists those that are. One that makes whole rollouts itself may stand beside task environments. Leaves out: what they do.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Self

from rolloutlog.contract.errors import SettingsError
from rolloutlog.contract.record.trajectory import Trajectory
from rolloutlog.producers.environments.task_conversation import TaskConversation
from rolloutlog.producers.environments.task_environment import TaskEnvironment
from rolloutlog.producers.workers.engine import Engine
from rolloutlog.producers.workers.environment import Dispatch, Environment, load

GROUP = "rolloutlog.environments"
_METHODS = ("tasks", "prompt", "restore", "limit", "reply", "score")


class EnvironmentTable:
    """Makes rollouts in any of its environments: what a worker is given."""

    def __init__(self, environments: Iterable[TaskEnvironment[Any]]) -> None:
        """Raises SettingsError where two have one name: seeds couldn't say which is meant."""
        self._environments: dict[str, TaskEnvironment[Any]] = {}
        for environment in environments:
            if environment.name in self._environments:
                raise SettingsError(f"two environments have the name {environment.name!r}", "give it to one of them")
            self._environments[environment.name] = environment
        self._opened = AsyncExitStack()

    async def __aenter__(self) -> Self:
        for environment in self._environments.values():
            if isinstance(environment, AbstractAsyncContextManager):
                await self._opened.enter_async_context(environment)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._opened.aclose()

    def has(self, name: str) -> bool:
        """Whether one has that name."""
        return name in self._environments

    def of(self, name: str) -> TaskEnvironment[Any]:
        """The environment of that name. Raises SettingsError."""
        if name not in self._environments:
            known = ", ".join(sorted(self._environments)) or "none"
            raise SettingsError(f"this worker has no environment {name!r}", f"it has {known}")
        return self._environments[name]

    async def rollout(self, dispatch: Dispatch, engine: Engine | None) -> Trajectory:
        """One attempt of one member. Raises SettingsError, Refused and Paused."""
        if engine is None:
            raise SettingsError("a conversation needs an engine", "give --engine")
        environment = self.of(dispatch.seed.env)
        whole: Any = environment
        if callable(getattr(whole, "rollout", None)):
            return await whole.rollout(dispatch, engine)
        return await TaskConversation(environment, engine, dispatch).run()


def environments_of(named: Sequence[str]) -> Environment:
    """What a worker makes rollouts in: an object `module:name` that does so itself, alone; else task environments,
    each `module:name` or installed. Raises SettingsError."""
    if len(named) == 1 and ":" in named[0] and callable(getattr(alone := load(named[0]), "rollout", None)):
        return alone
    return EnvironmentTable(environment_named(name) for name in named)


def environment_named(name: str) -> TaskEnvironment[Any]:
    """The task environment at `module:name`, or the installed one of that name. Raises SettingsError."""
    made: Any = load(name) if ":" in name else installed_environment(name)
    wanted = ("tasks",) if callable(getattr(made, "rollout", None)) else _METHODS
    if missing := [method for method in wanted if not callable(getattr(made, method, None))]:
        raise SettingsError(
            f"{name!r} has no method {missing[0]}",
            "a task environment has six (docs/design/live-loop.md); one alone, of a worker, may have `rollout` instead",
        )
    return made


def installed_environment(name: str) -> TaskEnvironment[Any]:
    """An installed environment, made with its defaults. Raises SettingsError."""
    found = {point.name: point for point in entry_points(group=GROUP)}
    if name not in found:
        known = ", ".join(sorted(found)) or "none"
        raise SettingsError(f"no environment {name!r} is installed (entry points {GROUP})", f"there are {known}")
    return _made(found[name])


def _made(point: EntryPoint) -> TaskEnvironment[Any]:
    try:
        return point.load()()
    except (Exception, SystemExit) as error:  # it is foreign code, which may also leave the program
        raise SettingsError(
            f"the environment {point.name!r} can't be loaded: {type(error).__name__}: {error}"
        ) from error
