"""Options of the OpenAI-compatible engine (design/live-loop#servers).

Guarantees: unknown options and those that can't work are refused before a server is asked. Leaves out: the engine
(`openai_engine`).
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from rolloutlog.contract.section import MOST, Section

URL = r"^https?://"


class OpenAIOptions(Section):
    """Options of the engine `openai` (`worker.engine`). A server that needs a key finds it in `OPENAI_API_KEY`."""

    base_url: str = Field(pattern=URL)
    """Where the API lies, such as `http://127.0.0.1:8000/v1`."""
    model: str = Field(min_length=1)
    """The model, as the server names it."""
    update: str = Field(pattern=rf"{URL}|^[\w.]+:\w+$")
    """What loads weights: a URL that is posted `model_path`, `weight_version`, `uri` and `digest`, or `module:callable`
    of (policy, uri, digest)."""
    render: str = Field(default="/tokenize", pattern=rf"{URL}|^/|^[\w.]+:\w+$")
    """What makes token ids of messages: a URL or a path of the server that is posted `model` and `messages` and answers
    with `tokens`, or `module:callable` of (messages)."""
    on_swap: Literal["in-place", "abort", "finish"] = "in-place"
    """What becomes of answers under way when weights change: they are asked for again from where they were, end as
    aborted, or are finished first."""
    lifeline: bool = True
    """Whether a connection is held on which nothing is said, and whose end tells that the server was started again; off
    where there is a proxy, which would end it for reasons of its own."""
    temperature: float = Field(default=1.0, gt=0, le=1000)
    """Of the odds."""
    top_p: float = Field(default=1.0, gt=0, le=1)
    """Of the odds, the likeliest of this share."""
    logprob_kind: Literal["raw", "processed"] = "raw"
    """Whether the server says log-probs of the model's own odds, or of those after temperature and top_p."""
    max_tokens: int = Field(default=1024, ge=1, le=MOST)
    """Of an answer whose length neither the seed nor the environment limits."""
    vocabulary: int | None = Field(default=None, ge=1, le=MOST)
    """Token ids of the model; unset: any are taken."""
