"""What an event's claim stands for, in the form that the pure rooms take.

Guarantees: a body that is gone or changed is a reason, not an exception. Leaves out: the store
(`rolloutlog.kafka.blobs.blob_store`).
"""

from __future__ import annotations

from rolloutlog.buffer.shard.indexing import Body
from rolloutlog.contract.events.event import Event
from rolloutlog.contract.wire.rejection import Rejected
from rolloutlog.kafka.blobs.blob_store import BlobStore, claimed_body


async def body_of(event: Event, blobs: BlobStore | None) -> Body | Rejected | None:
    """The claimed body, or why it can't be had; None for an event that carries its value.

    Raises BlobUnavailable where the store is away for longer than it has patience.
    """
    try:
        value, content_type = await claimed_body(event, blobs)
    except Rejected as rejected:
        return rejected
    return None if value is None or content_type is None else Body(value, content_type)
