"""A section of the settings: what holds for every one of them.

Guarantees: unknown keys are refused, and so is what isn't a finite number; `none` unsets an optional setting, wherever
it is written, so that one that has a default can be unset from a variable, a file or a flag alike; a setting of several
types takes the name of one for the type with its defaults. Leaves out: the settings themselves (`settings`,
`trainer_settings`).
"""

from __future__ import annotations

import typing
from collections.abc import Mapping
from typing import Any, cast

from pydantic import BaseModel, ConfigDict, model_validator

NONE = "none"
MOST = 2**31 - 1
"""Of anything that is counted."""
MOST_BYTES = 1 << 50
LONGEST_S = 366 * 86_400.0
"""A year: what is longer is a mistake, and what is much longer can't be counted in milliseconds."""


def tagged(given: Any) -> Any:
    """For settings of several types: the word alone stands for the type with its defaults."""
    return {"type": given} if isinstance(given, str) else given


class Section(BaseModel):
    """Base of all sections: frozen, unknown keys refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True, allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _none_unsets(cls, given: Any) -> Any:
        if not isinstance(given, Mapping):
            return given
        optional = {name for name, field in cls.model_fields.items() if type(None) in typing.get_args(field.annotation)}
        values = cast("Mapping[str, Any]", given)
        return {name: None if value == NONE and name in optional else value for name, value in values.items()}
