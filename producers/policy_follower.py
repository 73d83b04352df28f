"""PolicyFollower: the policies of a run as they are published, and where their weights lie.

Guarantees: once it is open it has read all that was published before; then it follows, and `current` is never older
than what it has read. It keeps what was said of the newest policies, `KEPT` of them, and reads the log again for older
ones. An event that can't be read is logged and passed over. Leaves out: the weights themselves.

    async with PolicyFollower(namespace="run-7", bootstrap_servers="localhost:9092") as policies:
        newest = await policies.newest()
        load(newest.uri)
        newest = await policies.newer(newest.policy)
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Self

from rolloutlog.contract.errors import NotOpen, Starved
from rolloutlog.contract.events.event import Event
from rolloutlog.contract.events.policy_versions import PublishedPolicy
from rolloutlog.contract.given import settings_of
from rolloutlog.contract.policies import History, Policy
from rolloutlog.contract.roles import Role
from rolloutlog.contract.settings import Settings
from rolloutlog.contract.topics import Topic
from rolloutlog.kafka.client.connection import Connection, connect
from rolloutlog.kafka.read.policy_history import find_published, learn
from rolloutlog.kafka.read.reading import Tail, ends_of
from rolloutlog.producers.background import Background

PARTITION = (Topic.POLICY_VERSIONS, 0)
KEPT = 1024
PATIENCE_S = 60.0


class PolicyFollower:
    """Follows `policy-versions`: one a process, used by one event loop. It needs the rights of the workers' role."""

    def __init__(
        self, settings: Settings | None = None, *, namespace: str | None = None, bootstrap_servers: str | None = None,
        command_config: str | None = None, connection: Connection | None = None,
    ) -> None:  # fmt: skip
        """What is given by name overrides `settings`; with an open `connection` neither is needed.

        Raises SettingsError.
        """
        self.settings = settings_of(
            settings, namespace=namespace, bootstrap_servers=bootstrap_servers, command_config=command_config
        )
        self._connection = connection
        self._tail: Tail | None = None
        self._history = History()
        self._said = OrderedDict[Policy, PublishedPolicy]()
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
        end = await ends_of(self._connection, *PARTITION)
        self._tail = tail = Tail(self._connection, {PARTITION: 0})
        await tail.open()
        try:
            async for events in tail.until({PARTITION: end.stable}):
                self._fold(events)
        except BaseException:
            await tail.close()
            raise
        tail.resume(*PARTITION)
        self._following.start(lambda stopping: self._follow(tail, stopping))

    async def close(self) -> None:
        """Stop following."""
        tail, self._tail = self._tail, None
        await self._following.stop()
        if tail is not None:
            await tail.close()

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
        if self._connection is None or self._tail is None:
            raise _not_open()
        return self._said.get(policy) or await find_published(self._connection, policy)

    async def _next(self, wanted: str, is_there: Callable[[], bool], timeout_s: float | None) -> PublishedPolicy:
        async with self._changed:
            try:
                await asyncio.wait_for(self._changed.wait_for(lambda: self._tail is None or is_there()), timeout_s)
            except TimeoutError as error:
                raise Starved(f"{wanted} wasn't published within {timeout_s:g} s") from error
            current = self.current
        if current is None or self._tail is None:
            raise _not_open()
        return await self.find(current)

    def _fold(self, events: Iterable[Event]) -> None:
        for event in events:
            if (said := learn(self._history, event)) is not None:
                self._said[said.policy] = said
                if len(self._said) > KEPT:
                    self._said.popitem(last=False)

    async def _follow(self, tail: Tail, stopping: asyncio.Event) -> None:
        try:
            while not stopping.is_set():
                if events := await tail.poll():
                    self._fold(events)
                    async with self._changed:
                        self._changed.notify_all()
        finally:
            async with self._changed:
                self._changed.notify_all()


def _not_open() -> NotOpen:
    return NotOpen("this policy follower isn't open", "use it inside `async with`")
