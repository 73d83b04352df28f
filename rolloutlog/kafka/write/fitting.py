"""Making a record fit the topic's limit before a client sees it.

Guarantees: a record above the limit never reaches a client, where it would cost a sequence number
(design/exactly-once#sends): its body goes to the blob store, which has it before the event is written, or
RecordTooLarge is raised. Leaves out: the store (`blobs`).
"""

from __future__ import annotations

from msgspec.structs import replace

from rolloutlog.contract.errors import RecordTooLarge
from rolloutlog.contract.events.event import Outgoing
from rolloutlog.contract.wire.claims import CLAIM
from rolloutlog.contract.wire.headers import CONTENT_TYPE
from rolloutlog.kafka.blobs.blob_store import BlobStore
from rolloutlog.kafka.client.connection import Connection


async def ensure_fits(record: Outgoing, connection: Connection, blobs: BlobStore | None) -> Outgoing:
    """The record, or where it is above the limit the event with a claim in place of its body, which is stored first."""
    if record.size <= connection.max_record_bytes:
        return record
    if blobs is None:
        raise RecordTooLarge(
            f"a record for {record.topic} has {record.size} bytes; the limit is {connection.max_record_bytes}"
        )
    content_type = dict(record.headers).get(CONTENT_TYPE, b"").decode()
    claim = await blobs.put(record.value, content_type)
    headers = [(name, CLAIM.encode() if name == CONTENT_TYPE else text) for name, text in record.headers]
    claimed = replace(record, headers=headers, value=claim.encode())
    return await ensure_fits(claimed, connection, None)  # headers above the limit can't be claimed
