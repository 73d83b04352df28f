"""PolicyFollower: the policies of a run as they are published, and where their weights lie.

Guarantees: once it is open it has read all that was published before; then it follows, and `current` is never older
than what it has read. Leaves out: how the topic is read and what of it is kept (`rolloutlog.kafka.read.policy_log`),
and the weights themselves.

    async with PolicyFollower(namespace="run-7", bootstrap_servers="localhost:9092") as policies:
        newest = await policies.newest()
        load(newest.uri)
        newest = await policies.newer(newest.policy)
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Self

from rolloutlog.contract.errors import NotOpen, Starved
from rolloutlog.contract.events.policy_versions import PublishedPolicy
from rolloutlog.contract.policies import History, Policy
from rolloutlog.contract.roles import Role
from rolloutlog.contract.settings import Settings
from rolloutlog.contract.topics import Topic
from rolloutlog.kafka.client.connection import Connection, connect
from rolloutlog.kafka.read.policy_log import PolicyLog
from rolloutlog.producers.background import Background

PATIENCE_S = 60.0


class PolicyFollower:
    """Follows `policy-versions`: one a process, used by one event loop. It needs the rights of the workers' role."""

    def __init__(
        self,
        settings: Settings | None = None,
        *,
        namespace: str | None = None,
        bootstrap_servers: str | None = None,
        command_config: str | None = None,
        connection: Connection | None = None,
    ) -> None:
        """What is given by name overrides `settings`; with an open `connection` neither is needed.

        Raises SettingsError.
        """
        self.settings = Settings.of(
            settings, namespace=namespace, bootstrap_servers=bootstrap_servers, command_config=command_config
        )
        self._connection = connection
        self._policies: PolicyLog | None = None
        self._history = History()
        self._changed = asyncio.Condition()
        self._following = Background("policy follower")

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def open(self) -> None:
        """Read what was published, and begin to follow. Raises BrokerUnreachable, NotAllowed, TopicMissing."""
        if self._connection is None:
            self._connection = await connect(self.settings, Role.WORKERS, [Topic.POLICY_VERSIONS])
        policies = PolicyLog(self._connection)
        await policies.open(allow_open=True)
        self._policies, self._history = policies, policies.history
        self._following.start(lambda stopping: self._follow(policies, stopping))

    async def close(self) -> None:
        """Stop following."""
        policies, self._policies = self._policies, None
        await self._following.stop()
        if policies is not None:
            await policies.close()

    @property
    def history(self) -> History:
        """All that was read, as a fold. Raises what ended the following."""
        self._following.check()
        return self._history

    @property
    def current(self) -> Policy | None:
        """The newest policy of the newest timeline; None before the first. Raises what ended the following."""
        return self.history.current

    async def newest(self, timeout_s: float | None = PATIENCE_S) -> PublishedPolicy:
        """The current policy; the first is waited for. Raises Starved after `timeout_s` seconds."""
        return await self._next("any policy", lambda: self.current is not None, timeout_s)

    async def newer(self, than: Policy, timeout_s: float | None = PATIENCE_S) -> PublishedPolicy:
        """The current policy, once it is another one than `than`; after a resume its version may be a lower one.

        Raises Starved after `timeout_s` seconds.
        """

        def is_there() -> bool:
            return self.current not in (None, than) and self.history.knows(than)

        return await self._next(f"a policy newer than {than}", is_there, timeout_s)

    async def find(self, policy: Policy) -> PublishedPolicy:
        """Any policy that was published, current or not. Raises UnknownPolicy."""
        if self._policies is None:
            raise _not_open()
        return await self._policies.find(policy)

    async def unknown(self, claimed: Iterable[Policy]) -> Policy | None:
        """One of these policies that was never published, said only after all that is on the log was read; None where
        there is none, or nothing was published at all. Raises OpenTransaction."""
        strange = [policy for policy in claimed if not self.history.knows(policy)]
        if not strange or self.history.is_empty or self._connection is None:
            return None
        async with PolicyLog(self._connection) as newest:
            return await newest.unknown(strange)

    async def _next(self, wanted: str, is_there: Callable[[], bool], timeout_s: float | None) -> PublishedPolicy:
        async with self._changed:
            try:
                await asyncio.wait_for(self._changed.wait_for(lambda: self._policies is None or is_there()), timeout_s)
            except TimeoutError as error:
                raise Starved(f"{wanted} wasn't published within {timeout_s:g} s") from error
            current = self.current
        if current is None:
            raise _not_open()
        return await self.find(current)

    async def _follow(self, policies: PolicyLog, stopping: asyncio.Event) -> None:
        try:
            while not stopping.is_set():
                if await policies.poll():
                    async with self._changed:
                        self._changed.notify_all()
        finally:
            async with self._changed:
                self._changed.notify_all()


def _not_open() -> NotOpen:
    return NotOpen("this policy follower isn't open", "use it inside `async with`")
