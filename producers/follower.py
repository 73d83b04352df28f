"""PolicyFollower: the policies of a run as they are published.

Guarantees: once it is open it has read all that was published before; then it follows, and `current` is never older
than what it has read. An event that can't be read is logged and passed over. Leaves out: weights.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Self

from rolloutlog.contract.errors import Starved
from rolloutlog.contract.events import Event
from rolloutlog.contract.policies import History, Policy
from rolloutlog.contract.topics import Topic
from rolloutlog.kafka.connection import Connection
from rolloutlog.kafka.policy_history import learn
from rolloutlog.kafka.reading import Tail, ends_of
from rolloutlog.producers.background import Background

PARTITION = (Topic.POLICY_VERSIONS, 0)


class PolicyFollower:
    """`async with PolicyFollower(connection) as policies: policies.current`."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._history = History()
        self._tail = Tail(connection, {PARTITION: 0})
        self._changed = asyncio.Condition()
        self._following = Background("policy follower")

    async def __aenter__(self) -> Self:
        end = await ends_of(self._connection, *PARTITION)
        await self._tail.open()
        try:
            async for events in self._tail.until({PARTITION: end.stable}):
                self._fold(events)
        except BaseException:
            await self._tail.close()
            raise
        self._tail.resume(*PARTITION)
        self._following.start(self._follow)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._following.stop()
        await self._tail.close()

    @property
    def history(self) -> History:
        """All that was read, as a fold. Raises what ended the following."""
        self._following.check()
        return self._history

    @property
    def current(self) -> Policy | None:
        """The newest policy of the newest timeline; None before the first. Raises what ended the following."""
        return self.history.current

    async def wait(self, policy: Policy | None = None, timeout_s: float = 60.0) -> None:
        """Wait until `policy` is known, or without one, until any is current. Raises Starved."""

        def is_there() -> bool:
            return self.current is not None if policy is None else self.history.knows(policy)

        async with self._changed:
            try:
                await asyncio.wait_for(self._changed.wait_for(is_there), timeout_s)
            except TimeoutError as error:
                wanted = "any policy" if policy is None else f"policy {policy}"
                raise Starved(f"{wanted} wasn't published within {timeout_s:.0f} s") from error

    def _fold(self, events: Iterable[Event]) -> None:
        for event in events:
            learn(self._history, event)

    async def _follow(self, stopping: asyncio.Event) -> None:
        try:
            while not stopping.is_set():
                if events := await self._tail.poll():
                    self._fold(events)
                    async with self._changed:
                        self._changed.notify_all()
        finally:
            async with self._changed:
                self._changed.notify_all()
