"""Options of the torch engine, as settings say them (design/live-loop#engine).

Guarantees: unknown ones and those that can't work are refused; no torch is loaded. Leaves out: the engine
(`published_engine`), and what makes it of them (`engine_options`).
"""

from __future__ import annotations

import string
from typing import Literal

from pydantic import Field, field_validator

from rolloutlog.contract.section import MOST, Section

OnSwap = Literal["in-place", "abort", "finish"]
LETTERS = string.ascii_letters + string.digits + string.punctuation + " \n"


class TorchEngineOptions(Section):
    """Options of the torch engine (`worker.engine`)."""

    letters: str = Field(default=LETTERS, min_length=1)
    """Letters of the tokenizer, in the order of their ids."""
    on_swap: OnSwap = "in-place"
    """What becomes of what is under way when weights change."""
    rows: int = Field(default=256, ge=1, le=MOST)
    """Sequences that are decoded at once, at most."""
    temperature: float = Field(default=1.0, gt=0, le=1000)
    """Of the odds, which log-probs are of as well."""
    seed: int | None = Field(default=None, ge=0, le=MOST)
    """Of what is drawn; unset: by chance."""
    threads: int = Field(default=1, ge=1, le=1024)
    """Threads that torch computes with."""

    @field_validator("letters")
    @classmethod
    def _each_once(cls, letters: str) -> str:
        if len(set(letters)) != len(letters):
            raise ValueError("a letter stands twice")
        return letters
