"""The torch engine of the options that settings say: what the entry point leads to (design/live-loop#engine).

Guarantees: options that can't work are refused before torch is loaded; without torch the extra is named. Leaves out:
the options (`torch_options`) and the engine (`published_engine`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from rolloutlog.contract.errors import MissingExtra, SettingsError
from rolloutlog.contract.wire.rejection import problem_of
from rolloutlog.policy.torch_options import TorchEngineOptions

if TYPE_CHECKING:
    from rolloutlog.policy.published_engine import PublishedEngine


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
