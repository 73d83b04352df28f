"""Settings for programs: whole ones, or just the namespace and the address that most need.

Guarantees: what is given by name overrides the settings; what can't be is refused with the field's name. Leaves out:
files and environment variables (`Settings.load`).
"""

from __future__ import annotations

from pydantic import ValidationError

from rolloutlog.contract.errors import SettingsError
from rolloutlog.contract.settings import Settings


def settings_of(settings: Settings | None = None, **given: str | None) -> Settings:
    """Settings with `given` fields that aren't None in place of theirs. Raises SettingsError."""
    if settings is not None and not any(given.values()):
        return settings
    base = {} if settings is None else settings.model_dump(exclude_unset=True)
    try:
        return Settings.model_validate(base | {name: text for name, text in given.items() if text is not None})
    except ValidationError as error:
        first = error.errors()[0]
        raise SettingsError(f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from error
