"""The task of a seed that asks for members: its group's origin seed holds it, and the seed says where that lies
(design 2).

Guarantees: a worker is told the task and the messages of every seed, whatever its kind; the log holds them once a
group. Leaves out: what a resume goes on with (`prefixes`).
"""

from __future__ import annotations

from rolloutlog.contract.errors import NotFound
from rolloutlog.contract.handles import Handle
from rolloutlog.contract.seeds import Seed
from rolloutlog.kafka.payloads import PayloadReader
from rolloutlog.producers.run import Run
from rolloutlog.producers.seed_body import seed_of


class Origins:
    """Reads origin seeds of one run; `seeds` is a reader of the topic `seeds`."""

    def __init__(self, run: Run, seeds: PayloadReader) -> None:
        self._run, self._seeds = run, seeds

    async def told(self, seed: Seed, partition: int) -> Seed:
        """The seed with task and messages of its origin, which lies on the same partition.

        Raises NotFound, BlobUnavailable, Rejected or another ValueError.
        """
        if not seed.asks or seed.origin_offset is None:
            return seed
        handle = Handle(partition, seed.origin_offset)
        origin = await seed_of(await self._seeds.read(handle), self._run)
        if origin.id != seed.origin:
            raise NotFound(f"seeds/{partition}/{seed.origin_offset} holds seed {origin.id}, not {seed.origin}")
        return seed.model_copy(update={"task": origin.task, "messages": origin.messages, "tokens": origin.tokens})
