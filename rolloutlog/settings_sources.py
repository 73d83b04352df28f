"""Where settings come from: flags, then `ROLLOUTLOG_*`, then the settings file, then defaults
(design/commands#settings).

Guarantees: the command line and `Settings.load` read them here, so both find the same run and the same broker; an
unknown key of the file and an unknown `ROLLOUTLOG_*` variable are refused with the nearest name; every value knows its
origin. Leaves out: what the settings mean (`rolloutlog.contract.settings`), and insisting on a broker.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from pydantic import BaseModel, ValidationError
from pydantic_settings import BaseSettings, EnvSettingsSource, SettingsConfigDict, TomlConfigSettingsSource

from rolloutlog.contract.errors import SettingsError
from rolloutlog.contract.settings import Settings

PREFIX = "ROLLOUTLOG_"
DEFAULT_FILE = Path("rolloutlog.toml")
OTHER_VARIABLES = frozenset({
    "ROLLOUTLOG_DATA_DIR", "ROLLOUTLOG_CACHE_DIR", "ROLLOUTLOG_MAVEN_REPOSITORY", "ROLLOUTLOG_BIN",
})  # fmt: skip
"""Variables that aren't settings of a run: folders of the embedded broker, where its jars come from, and where people's
own scripts find the commands."""
SERVICE_LINK = re.compile(
    r"ROLLOUTLOG_\w*?(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT(_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)"
)
"""What Kubernetes puts into every container beside a service whose name begins with `rolloutlog-`: nobody's setting."""


class _Sources(BaseSettings, Settings):  # pyright: ignore[reportIncompatibleVariableOverride]
    model_config = SettingsConfigDict(env_prefix=PREFIX, env_nested_delimiter="__", extra="forbid", frozen=True)


@dataclass(frozen=True, slots=True)
class Loaded:
    """Settings, and the origin of every value that isn't a default: dotted name to `flag`, a variable or a file, or
    `argument` for a program's own."""

    settings: Settings
    origins: dict[str, str]


def load(flags: Mapping[str, Any], config: Path | None = None, *, called: str = "flag") -> Loaded:
    """Merge the four sources; `called` is what the first is to the caller. Raises SettingsError."""
    _refuse_unknown_variables()
    path = config or (DEFAULT_FILE if DEFAULT_FILE.exists() else None)
    if config is not None and not config.is_file():
        raise SettingsError(f"there is no settings file {config}")
    given = {name: value for name, value in flags.items() if value is not None}
    merged: dict[str, Any] = {}
    origins: dict[str, str] = {}
    for values, origin in ((_toml(path) if path else {}, str(path)), (_environment(), None), (given, called)):
        _merge(merged, values)
        origins |= {name: origin or variable_of(name) for name in leaves(values)}
    try:
        return Loaded(Settings.model_validate(merged), origins)
    except ValidationError as error:
        raise SettingsError(_explain(error, origins)) from error


def load_with_broker(given: Mapping[str, Any], config: str | None = None) -> Settings:
    """Settings for a program, with the address of the broker that runs in the data folder where none is set.

    Raises SettingsError.
    """
    settings = load(given, None if config is None else Path(config), called="argument").settings
    return settings.model_copy(update={"bootstrap_servers": address_of(settings)})


def address_of(settings: Settings, data_dir: Path | None = None) -> str | None:
    """The broker's address: the one given, else that of the `command_config`, else of the broker that runs in the data
    folder (design/brokers#which); None where there is none."""
    from rolloutlog.broker import find
    from rolloutlog.kafka.client.properties import read_properties

    if settings.bootstrap_servers is not None:
        return settings.bootstrap_servers
    if (named := read_properties(settings.command_config).get("bootstrap.servers")) is not None:
        return named
    broker = find(data_dir)
    return None if broker is None else broker.bootstrap_servers


def variable_of(name: str) -> str:
    """The environment variable of a dotted name."""
    return PREFIX + name.upper().replace(".", "__")


def leaves(values: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """Dotted names of all values in nested tables."""
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from leaves(cast("Mapping[str, Any]", value), f"{prefix}{name}.")
        else:
            yield prefix + name


def known_names(model: type[BaseModel] = Settings, prefix: str = "") -> Iterator[str]:
    """Dotted names of all settings, sections included."""
    for name, field in model.model_fields.items():
        yield prefix + name
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield from known_names(field.annotation, f"{prefix}{name}.")


def _merge(into: dict[str, Any], values: Mapping[str, Any]) -> None:
    for name, value in values.items():
        if isinstance(value, Mapping) and isinstance(into.get(name), dict):
            _merge(into[name], cast("Mapping[str, Any]", value))
        else:
            into[name] = value


def _environment() -> dict[str, Any]:
    try:
        return EnvSettingsSource(_Sources)()
    except ValueError as error:
        raise SettingsError(f"a {PREFIX} variable can't be read: {error}") from error


def _toml(path: Path) -> dict[str, Any]:
    try:
        return TomlConfigSettingsSource(_Sources, path)()
    except (ValueError, OSError) as error:
        raise SettingsError(f"{path} can't be read: {error}") from error


def _refuse_unknown_variables() -> None:
    known = {variable_of(name) for name in known_names()} | OTHER_VARIABLES
    for name in os.environ:
        if name.startswith(PREFIX) and name not in known and not SERVICE_LINK.fullmatch(name):
            raise SettingsError(f"the variable {name} isn't known{_nearest(name, known)}")


def _nearest(name: str, known: set[str]) -> str:
    match = difflib.get_close_matches(name, known, 1)
    return f"; did you mean {match[0]}?" if match else ""


def _explain(error: ValidationError, origins: Mapping[str, str]) -> str:
    lines: list[str] = []
    for problem in error.errors():
        name = ".".join(str(part) for part in problem["loc"])
        where = f" ({origins[name]})" if name in origins else ""
        hint = _nearest(name, set(known_names())) if problem["type"] == "extra_forbidden" else ""
        text = "isn't known" if problem["type"] == "extra_forbidden" else problem["msg"].removeprefix("Value error, ")
        lines.append(f"{name or 'settings'}{where}: {text}{hint}")
    return "; ".join(lines)
