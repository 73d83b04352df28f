"""Natural numbers as text: the one spelling that every language reads alike.

Guarantees: ASCII digits only, below 2**63; no sign, blank or underscore. Leaves out: what the number counts.
"""

from __future__ import annotations

LIMIT = 2**63


def natural(text: str) -> int:
    """Read a number; raises ValueError."""
    if not (text.isascii() and text.isdecimal()) or (number := int(text)) >= LIMIT:
        raise ValueError(f"not a natural number below 2**63: {text[:40]!r}")
    return number
