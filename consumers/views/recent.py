"""What the trainer said in the last minutes: groups trained, with their reward, dropped and expired by reason.

Guarantees: read from `group-events` alone, from a broker's time on; what is void, since its timeline was left, isn't
counted. Leaves out: what came before.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

from rolloutlog.contract.events.event import Event
from rolloutlog.contract.events.group_events import GroupFinal, MemberExpired, read_group_event
from rolloutlog.contract.events.validation import read_headers
from rolloutlog.contract.policies import History
from rolloutlog.contract.topics import Topic
from rolloutlog.contract.vocabulary import Verdict
from rolloutlog.contract.wire.rejection import Rejected
from rolloutlog.kafka.client.connection import Connection
from rolloutlog.kafka.read.ends import Ends, Place
from rolloutlog.kafka.read.tail import Tail

LEFT_OUT = (Verdict.SURPLUS, Verdict.EXPIRED)


@dataclass(slots=True)
class Recent:
    """Counts of one stretch of time."""

    history: History
    steps: set[tuple[int, int]] = field(default_factory=set[tuple[int, int]])
    trained: int = 0
    tokens: int = 0
    rewards: list[float] = field(default_factory=list[float])
    dropped: Counter[str] = field(default_factory=Counter[str])
    expired: Counter[str] = field(default_factory=Counter[str])

    def fold(self, event: Event) -> None:
        """Count one event; one that can't be read says nothing (the shard makes a dead letter of it)."""
        try:
            read_headers(event)
            said = read_group_event(event)
        except Rejected:
            return
        if isinstance(said, MemberExpired):
            self.expired[str(said.verdict)] += 1
        elif self.history.is_live(said.timeline, said.step):
            self._ended(said)

    def _ended(self, final: GroupFinal) -> None:
        if final.reason is not None:
            self.dropped[final.reason] += 1
            return
        kept = [m for m in final.members if m.verdict is not None and m.verdict not in LEFT_OUT]
        self.steps.add((final.timeline, final.step))
        self.trained += 1
        self.tokens += sum(member.trainable_tokens for member in kept)
        self.rewards += [member.reward for member in kept if member.reward is not None]

    def as_json(self) -> dict[str, Any]:
        """Numbers by name."""
        return {
            "step": max(self.steps)[1] if self.steps else None,
            "steps": len(self.steps),
            "trained": self.trained,
            "trainable_tokens": self.tokens,
            "reward": fmean(self.rewards) if self.rewards else None,
            "dropped": dict(self.dropped),
            "expired": dict(self.expired),
        }


async def read_recent(
    connection: Connection, history: History, known: Mapping[Place, Ends], since: Mapping[Place, int]
) -> Recent:
    """Count `group-events` from the offsets `since` to the known ends."""
    recent = Recent(history)
    starts = {place: offset for place, offset in since.items() if place[0] is Topic.GROUP_EVENTS}
    starts = {place: offset for place, offset in starts.items() if offset < known[place].stable}
    if starts:
        async with Tail(connection, starts, known=known) as tail:
            async for events in tail.until({place: known[place].stable for place in starts}):
                for event in events:
                    recent.fold(event)
    return recent
