"""Where the entry point `openai` leads: the OpenAI-compatible engine of some options (design/live-loop#servers).

Guarantees: bad options are a typed error, and so is a client that isn't installed. Leaves out: the engine
(`openai_engine`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from rolloutlog.contract.errors import MissingExtra, SettingsError
from rolloutlog.contract.wire.rejection import problem_of
from rolloutlog.producers.engines.openai_options import OpenAIOptions

if TYPE_CHECKING:
    from rolloutlog.producers.engines.openai_engine import OpenAIEngine


def openai_engine(**options: Any) -> OpenAIEngine:
    """The engine of those options. Raises SettingsError, MissingExtra."""
    try:
        valid = OpenAIOptions.model_validate(options)
    except ValidationError as error:
        raise SettingsError(f"worker.engine.{problem_of(error)}") from error
    try:
        from rolloutlog.producers.engines.openai_engine import OpenAIEngine
    except ModuleNotFoundError as error:
        raise MissingExtra("openai", error.name or "openai") from error
    return OpenAIEngine(valid)
