"""What a seed refers to: its own body, its group's origin seed, and the prefix that a resume goes on with
(design/groups#seeds).

Guarantees: worker and buffer read a seed alike; an environment is given task and messages of every seed, whatever its
kind, while the log holds its origin seed; a prefix was checked as every reader checks it. A seed that is wrong is a
Rejected, never a crash. Leaves out: rendering; an engine goes on from token ids.
"""

from __future__ import annotations

from rolloutlog.contract.errors import NotFound
from rolloutlog.contract.events.event import Event
from rolloutlog.contract.events.rollouts import read_seed
from rolloutlog.contract.events.seeds import Seed
from rolloutlog.contract.events.validation import read_headers, read_rollout
from rolloutlog.contract.handles import Handle
from rolloutlog.contract.record.trajectory import Trajectory
from rolloutlog.kafka.blobs.blob_store import resolve_body
from rolloutlog.kafka.read.payloads import PayloadReader
from rolloutlog.producers.open_run import OpenRun


async def seed_of(event: Event, run: OpenRun) -> Seed:
    """The seed of a `seed.emitted`. Raises Rejected, BlobUnavailable."""
    return read_seed(event, await resolve_body(event, run.blobs))


class Prefixes:
    """Reads prefixes of one run."""

    def __init__(self, run: OpenRun, payloads: PayloadReader) -> None:
        self._run, self._payloads = run, payloads

    async def of(self, seed: Seed) -> Trajectory | None:
        """The prefix, None where the seed names none. Raises NotFound, BlobUnavailable, Rejected."""
        if seed.prefix is None:
            return None
        event = await self._payloads.read(Handle.parse(seed.prefix))
        read_headers(event, self._run.partitions)
        return read_rollout(event, await resolve_body(event, self._run.blobs)).trajectory


class Origins:
    """Reads origin seeds of one run; `seeds` is a reader of the topic `seeds`."""

    def __init__(self, run: OpenRun, seeds: PayloadReader) -> None:
        self._run, self._seeds = run, seeds

    async def with_task(self, seed: Seed, partition: int) -> Seed:
        """The seed with task, messages and snapshot of its origin, which lies on the same partition.

        Raises NotFound, BlobUnavailable, Rejected or another ValueError.
        """
        if not seed.asks or seed.origin_offset is None:
            return seed
        handle = Handle(partition, seed.origin_offset)
        origin = await seed_of(await self._seeds.read(handle), self._run)
        if origin.id != seed.origin:
            raise NotFound(f"seeds/{partition}/{seed.origin_offset} holds seed {origin.id}, not {seed.origin}")
        own = {name: getattr(origin, name) for name in ("task", "messages", "tokens", "snapshot")}
        return seed.model_copy(update=own)
