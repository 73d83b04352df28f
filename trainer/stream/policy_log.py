"""The policies of the run, followed on `policy-versions` (design/record#policies).

Guarantees: `catch_up` reads to the topic's present end, what is committed and not yet visible included, so that only
after it a policy may be called unknown. Leaves out: what a history means (`rolloutlog.contract.policies`).
"""

from __future__ import annotations

from typing import Self

from rolloutlog.contract.policies import History, Policy
from rolloutlog.contract.record.trajectory import Trajectory
from rolloutlog.contract.topics import Topic
from rolloutlog.kafka.client.connection import HIDDEN_S, Connection
from rolloutlog.kafka.read.policy_history import learn
from rolloutlog.kafka.read.reading import Tail, settled

PLACE = (Topic.POLICY_VERSIONS, 0)


class PolicyLog:
    """`async with PolicyLog(connection) as policies`: its `history` is the topic's as it was last read."""

    def __init__(self, connection: Connection) -> None:
        self.history = History()
        self._connection = connection
        self._tail = Tail(connection, {PLACE: 0})

    async def __aenter__(self) -> Self:
        await self._tail.open()
        try:
            await self.catch_up()
        except BaseException:
            await self._tail.close()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._tail.close()

    async def catch_up(self, least: int = 0) -> None:
        """Read to the present end, and at least up to the offset `least`; what a transaction hides is waited for.

        Raises OpenTransaction where one hides it for too long.
        """
        found = await settled(self._connection, [PLACE], HIDDEN_S, least=least)
        end = found[PLACE].stable
        self._tail.resume(*PLACE)
        async for events in self._tail.until({PLACE: end}):
            for event in events:
                learn(self.history, event)
        self._tail.seek(*PLACE, end)

    async def unknown(self, trajectory: Trajectory) -> Policy | None:
        """A policy that the trajectory claims and that was never published or imported; None if there is none."""
        claimed = sorted({Policy(timeline, version) for timeline, version, _ in trajectory.segments.tolist()})
        if any(not self.history.knows(policy) for policy in claimed):
            await self.catch_up()
        return next((policy for policy in claimed if not self.history.knows(policy)), None)
