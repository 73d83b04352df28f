"""Natural numbers as text: the one spelling that every language reads alike.

Guarantees: ASCII digits only, below 2**63; no sign, blank or underscore; in JSON whole numbers alone, never a text, a
Boolean or a fraction. Leaves out: what the number counts.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

LIMIT = 2**63
COUNTED = 2**62
"""Numbers that somebody goes on from are below it, so that the next ones can be written."""

Counted = Annotated[int, Field(ge=0, lt=COUNTED, strict=True)]
"""A step, a draw, or whatever else is counted on."""


def natural(text: str) -> int:
    """Read a number; raises ValueError."""
    if not (text.isascii() and text.isdecimal()) or (number := int(text)) >= LIMIT:
        raise ValueError(f"not a natural number below 2**63: {text[:40]!r}")
    return number
