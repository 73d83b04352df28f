"""Options of the torch engine, and the engine that they make (design/live-loop#engine).

Guarantees: unknown options and those that can't work are refused before torch is loaded; without torch the extra is
named. Leaves out: the engine (`published_engine`).
"""

from __future__ import annotations

import string
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field, ValidationError, field_validator

from rolloutlog.contract.errors import MissingExtra, SettingsError
from rolloutlog.contract.section import MOST, Section
from rolloutlog.contract.wire.rejection import problem_of

if TYPE_CHECKING:
    from rolloutlog.policy.published_engine import PublishedEngine

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


def torch_engine(**options: Any) -> PublishedEngine:
    """The engine of those options. Raises SettingsError, MissingExtra."""
    try:
        valid = TorchEngineOptions.model_validate(options)
    except ValidationError as error:
        raise SettingsError(f"worker.engine.{problem_of(error)}") from error
    try:
        from rolloutlog.policy.published_engine import PublishedEngine
    except ModuleNotFoundError as error:
        raise MissingExtra("trainer", error.name or "torch") from error
    return PublishedEngine(valid)
