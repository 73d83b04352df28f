"""The seam to what samples tokens: an inference server, a model in this process, a table in a test.

Guarantees: an environment that speaks to this protocol only, works with every engine. Leaves out: which policy is
current, which the worker knows and tells those that can change their weights (`weight_updates`); a sample says which
policy it came from.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

from rolloutlog.contract.policies import Policy
from rolloutlog.contract.record.sample import Sample


class Engine(Protocol):
    """Samples tokens. Several calls run at once. One that has `temperature`, `top_p`, `top_k` or `logprob_kind` says it
    of all that it samples; of one that has a number `vocabulary` no token outside of it is taken.

    One that is an async context manager is opened and closed by its worker.
    """

    async def render(self, messages: Sequence[dict[str, Any]]) -> list[int]:
        """Token ids of a conversation up to where the model speaks next."""
        ...

    async def sample(self, prompt_ids: Sequence[int], *, max_tokens: int | None = None) -> Sample:
        """Go on from these token ids, never from re-rendered text."""
        ...


@runtime_checkable
class Updatable(Protocol):
    """An engine that takes other weights while it samples."""

    async def update(self, policy: Policy, uri: str | None, digest: str | None) -> None:
        """Sample with the weights that were published there from now on; while it fails the old ones go on.

        Called once a policy, one call at a time, beside calls of `sample`.
        """
        ...
