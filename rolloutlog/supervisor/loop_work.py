"""Whether a service of a live loop has done all that it was started for, and what its death leaves on the log
(design/live-loop#run).

Guarantees: asked of the log, so what somebody else told to end, which ends as well as what has done its work, isn't
taken for done; partitions of what died needn't wait for its session, where the broker lets us say so in time. Leaves
out: starting it again (`supervision`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress

from pydantic import ValidationError

from rolloutlog.contract.errors import BrokerUnreachable, RolloutlogError
from rolloutlog.contract.roles import Role
from rolloutlog.contract.settings import Settings
from rolloutlog.kafka.client.connection import connect
from rolloutlog.kafka.client.owners import leave_for
from rolloutlog.kafka.live_watermarks import read_live_watermarks
from rolloutlog.kafka.run_record import read_run
from rolloutlog.producers.feeding.feed_cursor import FeedCursor, cursor_name
from rolloutlog.supervisor.services import Service, ServiceRole

GROUPS = {ServiceRole.WORKER: "workers", ServiceRole.BUFFER: "buffer"}
"""Whose members they are."""
LEAVE_S = 2.0
"""As others wait to be looked at meanwhile."""


class LoopWork:
    """Work of one run: the trainer's up to `to_step` (None: for ever), and of each feeder through all epochs, if there
    are any; `fed` are the environments of feeders by name."""

    def __init__(self, settings: Settings, to_step: int | None, fed: Mapping[str, str]) -> None:
        self._settings, self._to_step, self._fed = settings, to_step, fed

    async def has_done(self, service: Service) -> bool:
        """Whether it has; not while the broker is away."""
        with suppress(BrokerUnreachable):
            if service.role is ServiceRole.TRAINER and self._to_step is not None:
                return await last_step(self._settings) >= self._to_step
            if service.role is ServiceRole.FEEDER and self._settings.loop.epochs is not None:
                return await self._is_fed(self._fed[service.name], self._settings.loop.epochs)
        return False

    async def has_died(self, service: Service, process: int) -> None:
        """Give the place of that process in its group to others, if it had one; its session would end anyway."""
        if (role := GROUPS.get(service.role)) is not None:
            with suppress(RolloutlogError, TimeoutError):
                async with asyncio.timeout(LEAVE_S):
                    await leave_for(await connect(self._settings, Role.OPERATOR), role, process)

    async def _is_fed(self, env: str, epochs: int) -> bool:
        """The cursor is at the end of the data before its last groups are."""
        run = await read_run(await connect(self._settings, Role.OPERATOR))
        said = run.cursors.get(cursor_name(env))
        with suppress(ValidationError):  # another feeder's, which the feeder tells
            cursor = None if said is None else FeedCursor.model_validate(dict(said))
            return cursor is not None and cursor.is_done and cursor.epoch >= epochs
        return False


async def last_step(settings: Settings) -> int:
    """The last train step on the log; 0 before the first."""
    marks = await read_live_watermarks(await connect(settings, Role.OPERATOR))
    return 0 if marks is None else marks.step
