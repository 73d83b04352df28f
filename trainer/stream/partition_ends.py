"""How far the rollouts of a stream go. Guarantees: a source of another run has its own ends for good. Leaves out:
following them."""

from __future__ import annotations

from rolloutlog.contract.topics import Topic
from rolloutlog.kafka.client.connection import HIDDEN_S
from rolloutlog.kafka.read.ends import Ends, Place, ends_at
from rolloutlog.kafka.read.reading import settled
from rolloutlog.trainer.stream.opening import Parts


async def partition_ends(parts: Parts, *, whole: bool = False) -> dict[Place, Ends]:
    """Ends of the partitions; `whole`: once nothing that was written before is hidden any more."""
    if parts.rollouts.offline:
        return {**parts.rollouts.known}
    places = [(Topic.ROLLOUTS, number) for number in parts.intake.assemblies]
    return await (settled(parts.connection, places, HIDDEN_S) if whole else ends_at(parts.connection, places))
