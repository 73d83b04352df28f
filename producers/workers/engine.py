"""The seam to what samples tokens: an inference server, a model in this process, a table in a test.

Guarantees: an environment that speaks to this protocol only, works with every engine. Leaves out: loading weights,
and which policy runs where, which the engine's owner arranges; a sample says which policy it came from.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from rolloutlog.contract.record.sample import Sample


class Engine(Protocol):
    """Samples tokens. Several calls run at once. One that has a number `temperature` says it of all that it samples."""

    async def render(self, messages: Sequence[dict[str, Any]]) -> list[int]:
        """Token ids of a conversation up to where the model speaks next."""
        ...

    async def sample(self, prompt_ids: Sequence[int], *, max_tokens: int | None = None) -> Sample:
        """Go on from these token ids, never from re-rendered text."""
        ...
