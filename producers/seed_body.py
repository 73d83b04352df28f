"""What a seed says: the value of its event, or the body that the event claims.

Guarantees: a worker takes what the buffer takes, since both read it alike; a seed that is wrong is a Rejected, never a
crash. Leaves out: headers, which `contract.checks` reads.
"""

from __future__ import annotations

from rolloutlog.contract.events import Event
from rolloutlog.contract.notices import read_seed
from rolloutlog.contract.seeds import Seed
from rolloutlog.kafka.blobs import claimed_body
from rolloutlog.producers.run import Run


async def seed_of(event: Event, run: Run) -> Seed:
    """The seed of a `seed.emitted`. Raises Rejected, BlobUnavailable."""
    body, _ = await claimed_body(event, run.blobs)
    return read_seed(event, body)
