"""The body of an event: the value that it carries, or what its claim stands for in a blob store.

Guarantees: whoever reads values reads a `Body`, so that a claimed one is judged as one that came with its event. Leaves
out: fetching what is claimed (`rolloutlog.kafka.blobs.blob_store.resolve_body`).
"""

from __future__ import annotations

from typing import NamedTuple

from rolloutlog.contract.events.event import Event
from rolloutlog.contract.vocabulary import RejectReason
from rolloutlog.contract.wire.claims import CLAIM
from rolloutlog.contract.wire.headers import CONTENT_TYPE, Headers
from rolloutlog.contract.wire.rejection import Rejected


class Body(NamedTuple):
    """Bytes and how to read them."""

    value: bytes
    content_type: str

    @property
    def is_claim(self) -> bool:
        """True if the bytes stand for a body elsewhere."""
        return self.content_type == CLAIM

    @classmethod
    def of(cls, event: Event) -> Body:
        """What an event carries. Raises Rejected(value-null) and HeaderError."""
        if event.value is None:
            raise Rejected(RejectReason.VALUE_NULL, "the value is null")
        return cls(event.value, event.headers.require(Headers.content_type))


def is_claimed(event: Event) -> bool:
    """True if what an event carries stands for a body elsewhere, by its headers alone."""
    return event.headers.raw.get(CONTENT_TYPE) == _CLAIM


_CLAIM = CLAIM.encode()
Resolved = Body | Rejected
"""A body, or why it can't be had."""


def body_of(event: Event, resolved: Resolved | None = None) -> Body:
    """What was resolved, or what the event carries where nothing was. Raises Rejected for a body that can't be had."""
    if isinstance(resolved, Rejected):
        raise resolved
    return Body.of(event) if resolved is None else resolved
