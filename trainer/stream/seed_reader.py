"""Reading `seeds` for the seed watermark alone: which groups were asked for and haven't ended
(design/trainer#watermarks).

Guarantees: by headers, without waiting; a seed that isn't read yet keeps the mark where it is. What was read is taken
in before anything else may happen. Leaves out: what seeds ask for.
"""

from __future__ import annotations

from collections.abc import Mapping

from rolloutlog.contract.errors import BrokerUnreachable
from rolloutlog.contract.events.event import Event
from rolloutlog.contract.events.validation import read_headers
from rolloutlog.contract.vocabulary import EventType, RunKind, SeedKind
from rolloutlog.contract.wire.rejection import Rejected
from rolloutlog.kafka.read.tail import Tail
from rolloutlog.trainer.groups.assembly import Assembly

OF_MEMBERS = (SeedKind.RESUME, SeedKind.REROLL)
TURNS = 64
"""Polls at most, so that a step waits for no flood of seeds."""


class SeedReader:
    """Follows `seeds` for these assemblies."""

    def __init__(self, tail: Tail, assemblies: Mapping[int, Assembly]) -> None:
        self._tail, self._assemblies = tail, assemblies

    async def advance(self) -> None:
        """Take in what came; nothing while the broker is away."""
        for _ in range(TURNS):
            try:
                events = await self._tail.poll(0)
            except BrokerUnreachable:
                return
            if not events:
                return
            for event in events:
                self._fold(event)

    def _fold(self, event: Event) -> None:
        assembly = self._assemblies[event.partition]
        if (group := origin_of(event, len(self._assemblies))) is not None:
            assembly.endings.saw_seed(group, event.offset)
        assembly.endings.next_seed = event.offset + 1


def origin_of(event: Event, partitions: int) -> str | None:
    """The group of an origin seed that will get a final event; None for all else."""
    try:
        kind = read_headers(event, partitions)
    except Rejected:
        return None
    headers = event.headers
    if kind is not EventType.SEED_EMITTED or headers.kind is RunKind.EVAL or headers.seed_kind in OF_MEMBERS:
        return None
    return headers.group
