"""One answer as a server streams it, which may be asked for in several requests (design/live-loop#servers).

Guarantees: every token has an id and a log-prob that the server said, and the policy that its request was made under;
where the server doesn't say ids, that is an error, since text that is tokenised again may be other tokens. Leaves out:
requests (`openai_engine`).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from openai.types import CompletionChoice

from rolloutlog.contract.errors import InvalidRecord
from rolloutlog.contract.policies import Policy
from rolloutlog.contract.record.sample import Sample
from rolloutlog.contract.record.segments import Segment
from rolloutlog.contract.vocabulary import RejectReason
from rolloutlog.contract.wire.refusal import refusing

AS_ID = "token_id:"
"""How a server names a token by its id where it is asked to."""


class StreamedAnswer:
    """What was received so far."""

    def __init__(self) -> None:
        self.ids = list[int]()
        self._logprobs = list[float]()
        self._segments = list[Segment]()
        self._text = ""

    def __len__(self) -> int:
        return len(self.ids)

    def take(self, choice: CompletionChoice, policy: Policy) -> None:
        """One chunk. Raises InvalidRecord."""
        said = choice.logprobs
        ids = _ids_of(choice)
        logprobs: list[float | None] = list((said and said.token_logprobs) or [])
        if ids is None:
            raise InvalidRecord(
                RejectReason.TOKEN_IDS, "the server gives no token ids", "vLLM from 0.10.2 on and SGLang give them"
            )
        if len(ids) != len(logprobs):
            raise InvalidRecord(RejectReason.LENGTHS, f"the server gave {len(ids)} tokens, {len(logprobs)} log-probs")
        if ids and (not self._segments or self._segments[-1][:2] != policy):
            self._segments.append((policy.timeline, policy.version, len(self.ids)))
        self.ids += ids
        self._logprobs += [float("nan") if number is None else number for number in logprobs]  # which nobody takes
        self._text += choice.text

    def sample(self, stop: str) -> Sample:
        """As an engine answers. Raises InvalidRecord where an id or a log-prob is no such number."""
        with refusing():
            ids, logprobs = np.array(self.ids, np.int32), np.array(self._logprobs, np.float32)
        return Sample(ids, logprobs, self._segments, self._text, stop)


def _ids_of(choice: CompletionChoice) -> list[int] | None:
    """Ids of a chunk's tokens, as `return_token_ids` or `return_tokens_as_token_ids` say them; None: it doesn't."""
    given: Any = (choice.model_extra or {}).get("token_ids")
    if given is not None:
        return [int(token) for token in given]
    tokens = (choice.logprobs and choice.logprobs.tokens) or []
    if not tokens and not choice.text:
        return []
    by_name = [int(token.removeprefix(AS_ID)) for token in tokens if token.startswith(AS_ID)]
    return by_name if tokens and len(by_name) == len(tokens) else None
