"""Claim checks: a body too large for the topic lies in a blob store, and its event carries the claim
(design/log#claims).

Guarantees: a claim names URL, size and SHA-256, so a body that is gone or changed is noticed; how much memory and text
it may ask for is bounded. Leaves out: reading and writing blobs (`rolloutlog.kafka.blobs.blob_store`).
"""

from __future__ import annotations

import orjson
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from rolloutlog.contract.vocabulary import RejectReason
from rolloutlog.contract.wire.json_text import parse
from rolloutlog.contract.wire.rejection import Rejected, problem_of

CLAIM = "application/vnd.rolloutlog.claim+json"
MAX_BODY = 1 << 30
MAX_URL = 4096
"""Bytes of a body, which a reader holds in memory, and letters of a URL."""
CLAIM_ROOM = 2 * MAX_URL
"""Bytes to leave for a claim in place of a body."""


class Claim(BaseModel):
    """Where the body of an event lies; `content_type` is the body's."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    url: str
    size: int = Field(ge=0)
    digest: str = Field(pattern="^[0-9a-f]{64}$")
    content_type: str

    def encode(self) -> bytes:
        """The event's value."""
        return orjson.dumps(self.model_dump())

    @classmethod
    def decode(cls, value: bytes) -> Claim:
        """Read an event's value. Raises Rejected."""
        try:
            claim = cls.model_validate(parse(value))
        except ValidationError as error:
            raise Rejected(RejectReason.SHAPE, f"not a claim: {problem_of(error)}") from error
        if claim.size > MAX_BODY or len(claim.url) > MAX_URL:
            raise Rejected(RejectReason.SHAPE, f"a claim is for {MAX_BODY} bytes and a URL of {MAX_URL} at most")
        return claim
