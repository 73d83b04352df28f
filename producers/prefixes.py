"""The prefix that a seed of kind resume goes on with: an aborted attempt, read from the log by its handle (design 6).

Guarantees: what is returned was checked as every reader checks it. Leaves out: rendering; an engine goes on from
token ids.
"""

from __future__ import annotations

from rolloutlog.contract.checks import read_headers, read_rollout
from rolloutlog.contract.handles import Handle
from rolloutlog.contract.seeds import Seed
from rolloutlog.contract.trajectory import Trajectory
from rolloutlog.kafka.blobs import claimed_body
from rolloutlog.kafka.payloads import PayloadReader
from rolloutlog.producers.run import Run


class Prefixes:
    """Reads prefixes of one run."""

    def __init__(self, run: Run, payloads: PayloadReader) -> None:
        self._run, self._payloads = run, payloads

    async def of(self, seed: Seed) -> Trajectory | None:
        """The prefix, None where the seed names none. Raises NotFound, BlobUnavailable, Rejected."""
        if seed.prefix is None:
            return None
        event = await self._payloads.read(Handle.parse(seed.prefix))
        read_headers(event, self._run.partitions)
        body, body_type = await claimed_body(event, self._run.blobs)
        return read_rollout(event, body, body_type).trajectory
