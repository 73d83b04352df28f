"""Where the entry point `openai` leads: the OpenAI-compatible engine of some options (design/live-loop#servers).

Guarantees: bad options are a typed error, and so is a client that isn't installed. Leaves out: the engine
(`openai_engine`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from rolloutlog.contract.errors import MissingExtra, SettingsError
from rolloutlog.producers.engines.openai_options import OpenAIOptions

if TYPE_CHECKING:
    from rolloutlog.producers.engines.openai_engine import OpenAIEngine


def openai_engine(**options: Any) -> OpenAIEngine:
    """The engine of those options. Raises SettingsError, MissingExtra."""
    try:
        valid = OpenAIOptions.model_validate(options)
    except ValidationError as error:
        first = error.errors()[0]
        raise SettingsError(f"worker.engine.{'.'.join(map(str, first['loc']))}: {first['msg']}") from error
    try:
        from rolloutlog.producers.engines.openai_engine import OpenAIEngine
    except ModuleNotFoundError as error:
        raise MissingExtra("openai", error.name or "openai") from error
    return OpenAIEngine(valid)
