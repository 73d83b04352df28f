"""`rolloutlog config show`: every setting, its value and where it comes from.

Guarantees: what it prints is what a service started with the same flags would use. Leaves out: changing settings.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any, cast

import typer

from rolloutlog.cli.options import AsJson
from rolloutlog.cli.screen.output import print_json, print_table
from rolloutlog.settings_sources import leaves, load

app = typer.Typer(no_args_is_help=True, help="Settings and where they come from.")


@app.command()
def show(
    namespace: Annotated[str | None, typer.Option("--namespace", "-n", help="Prefix of the run's topics.")] = None,
    bootstrap_servers: Annotated[str | None, typer.Option("--bootstrap-servers", "-b", help="Kafka's address.")] = None,
    config: Annotated[Path | None, typer.Option("--config", help="Settings file (default ./rolloutlog.toml).")] = None,
    as_json: AsJson = False,
) -> None:
    """Print every setting with its origin."""
    loaded = load({"namespace": namespace, "bootstrap_servers": bootstrap_servers}, config)
    values = loaded.settings.model_dump(mode="json")
    names = list(leaves(values))
    if as_json:
        origins = {name: origin_of(name, loaded.origins) for name in names}
        print_json({"settings": values, "origins": origins, "digest": loaded.settings.digest})
        return
    rows = [(n, origin_of(n, loaded.origins), text) for n in names for text in _lines(_at(values, n))]
    print_table(None, ("setting", "origin", "value"), rows)


def origin_of(name: str, origins: dict[str, str]) -> str:
    """Where a value comes from. A word that stands for a type with its defaults is the origin of the type."""
    return origins.get(name) or origins.get(name.removesuffix(".type"), "default")


def _lines(value: Any) -> list[str]:
    """A value as it could be given again, in JSON; each of a list has a line."""
    several = cast("list[Any]", value) if isinstance(value, list) else []
    return [_text(one) for one in several or [value]]


def _text(value: Any) -> str:
    if isinstance(value, dict):
        return json.dumps(_set(cast("dict[str, Any]", value)), default=str)
    return "unset" if value is None else str(value)


def _set(section: dict[str, Any]) -> dict[str, Any]:
    """What is set in it, at any depth."""
    inner = {name: _set(cast("dict[str, Any]", one)) if isinstance(one, dict) else one for name, one in section.items()}
    return {name: one for name, one in inner.items() if one not in (None, {})}


def _at(values: Any, name: str) -> Any:
    for part in name.split("."):
        values = values[part]
    return values
