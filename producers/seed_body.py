"""What a seed says: the value of its event, or the body that the event claims.

Guarantees: a seed whose digest or form is wrong is a ValueError (Rejected among them), never a crash. Leaves out:
headers, which `contract.checks` reads.
"""

from __future__ import annotations

from rolloutlog.contract.checks import is_claim, read_json
from rolloutlog.contract.claims import Claim
from rolloutlog.contract.errors import BlobUnavailable
from rolloutlog.contract.events import Event
from rolloutlog.contract.seeds import Seed
from rolloutlog.producers.run import Run


async def seed_of(event: Event, run: Run) -> Seed:
    """The seed of a `seed.emitted`. Raises ValueError, BlobUnavailable."""
    if not is_claim(event):
        read_json(event)
        return Seed.of(event)
    if run.blobs is None:
        raise BlobUnavailable("a seed lies in a blob store, and none is configured")
    return Seed.decode(await run.blobs.get(Claim.decode(event.value or b"")))
