"""Watching the services of a live loop until they have done what they were started for (design/live-loop#run).

Guarantees: what dies is started again and told; the end of the trainer's steps, or of all feeders' data, ends the run;
on the way out, however often that is cancelled, services end one role after another, each asked to drain, and one that
doesn't within its time is killed and told. Leaves out: broker and topics (`live_run`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from rolloutlog.supervisor.child import Child, ending
from rolloutlog.supervisor.services import Service, ServiceRole
from rolloutlog.supervisor.uncut import uncut

TICK_S = 0.1
DRAIN_S = {ServiceRole.FEEDER: 15.0, ServiceRole.WORKER: 50.0, ServiceRole.BUFFER: 20.0, ServiceRole.TRAINER: 60.0}
"""How long each role may take to end; a worker gives members 30 s, and environments 10 s more."""


class Supervision:
    """The services, watched."""

    def __init__(
        self,
        services: Sequence[Service],
        logs: Path,
        *,
        restarts: int,
        tell: Callable[[str], None],
        has_done: Callable[[Service], Awaitable[bool]],
        on_death: Callable[[Service, int], Awaitable[None]],
    ) -> None:
        """`has_done` says of a service that ended well whether all is done that it was started for, or somebody asked
        that process to end; `on_death` is told of a service that will be started again, and which process it was."""
        self.children = [Child(service, logs, restarts=restarts) for service in services]
        self._tell, self._has_done, self._on_death = tell, has_done, on_death

    async def run(self, stop: asyncio.Event) -> str:
        """Start them and watch them until one of three things happens, which it says: `stopped`, `steps` or `data`.

        Ends them in order, also when it is cancelled. Raises ServiceFailed.
        """
        try:
            while not stop.is_set():
                if why := await self._looked(asyncio.get_running_loop().time()):
                    return why
                await asyncio.sleep(TICK_S)
            return "stopped"
        finally:
            await uncut(self._end())

    @property
    def running(self) -> int:
        """Processes that run now."""
        return sum(child.is_running for child in self.children)

    @property
    def started_again(self) -> dict[str, int]:
        """Restarts, by service, of those that had any."""
        return {child.service.name: child.started_again for child in self.children if child.started_again}

    async def _looked(self, now: float) -> str | None:
        """One look at all of them; why the run is over, if it is."""
        for child in self.children:
            process = child.pid
            if process is not None and (code := child.ended()) is not None:
                if code == 0 and await self._has_done(child.service):
                    if child.service.role is ServiceRole.TRAINER:
                        return "steps"
                    child.give_up()
                    continue
                said, seconds = child.last_line, child.rest(code, now)
                self._tell(f"{child.service.name} ended with {ending(code)}, and starts again in {seconds:g} s: {said}")
                await self._on_death(child.service, process)
            child.start_if_due(now)
        feeders = [child for child in self.children if child.service.role is ServiceRole.FEEDER]
        return "data" if feeders and all(child.is_done for child in feeders) else None

    async def _end(self) -> None:
        for child in self.children:
            child.give_up()
        for role in ServiceRole:
            children = [child for child in self.children if child.service.role is role]
            for child in children:
                child.ask_to_end()
            await self._ended(children, DRAIN_S[role])

    async def _ended(self, children: Sequence[Child], patience_s: float) -> None:
        until = asyncio.get_running_loop().time() + patience_s
        while any(child.is_running for child in children):
            for child in children:
                child.ended()
            if asyncio.get_running_loop().time() > until:
                for child in children:
                    if child.is_running:
                        self._tell(f"{child.service.name} didn't end within {patience_s:g} s, and is killed")
                        child.kill()
            await asyncio.sleep(TICK_S)
