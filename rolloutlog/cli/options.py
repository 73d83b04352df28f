"""The options that every command that meets the log shares, declared once.

Guarantees: `with_settings` gives a command its `Settings` as first argument and the command line the options -n, -b,
--command-config and --config. Leaves out: options of one command alone.
"""

from __future__ import annotations

import functools
import inspect
import math
import typing
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Concatenate, ParamSpec, TypeVar

import typer

from rolloutlog.contract.settings import Settings
from rolloutlog.settings_sources import load

P = ParamSpec("P")
R = TypeVar("R")

AsJson = Annotated[bool, typer.Option("--json", help="Print facts as JSON, one object, or one per line.")]
DataDir = Annotated[
    Path | None, typer.Option("--data-dir", envvar="ROLLOUTLOG_DATA_DIR", help="Folder of the embedded broker.")
]
MetricsPort = Annotated[
    int | None, typer.Option("--metrics-port", min=1, max=65535, help="Numbers over HTTP, for Prometheus.")
]
Limit = Annotated[int | None, typer.Option("--limit", min=1, help="Print at most so many.")]


def _finite(seconds: float | None) -> float | None:
    if seconds is not None and not math.isfinite(seconds):
        raise typer.BadParameter(f"{seconds} isn't a finite number of seconds")
    return seconds


Since = Annotated[
    float | None,
    typer.Option("--since", min=0, callback=_finite, help="Only of the last so many seconds."),
]

_SHARED: dict[str, Any] = {
    "namespace": Annotated[str | None, typer.Option("--namespace", "-n", help="Prefix of the run's topics.")],
    "bootstrap_servers": Annotated[str | None, typer.Option("--bootstrap-servers", "-b", help="Kafka's address.")],
    "command_config": Annotated[
        str | None, typer.Option("--command-config", help="Java client.properties with security settings.")
    ],
    "config": Annotated[Path | None, typer.Option("--config", help="Settings file (default ./rolloutlog.toml).")],
}


def with_settings(command: Callable[Concatenate[Settings, P], R]) -> Callable[..., R]:
    """A command whose first argument is filled from flags, environment, settings file and defaults, in that order."""

    @functools.wraps(command)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> R:
        shared = {name: kwargs.pop(name, None) for name in _SHARED}
        config = typing.cast("Path | None", shared.pop("config"))
        return command(load(shared, config).settings, *args, **kwargs)

    own = list(inspect.signature(command).parameters.values())[1:]
    hints = typing.get_type_hints(command, include_extras=True)
    own = [parameter.replace(annotation=hints[parameter.name]) for parameter in own]
    extra = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)
        for name, annotation in _SHARED.items()
    ]
    parameters = sorted([*own, *extra], key=lambda parameter: parameter.kind)
    wrapped.__dict__["__signature__"] = inspect.Signature(parameters)
    wrapped.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return wrapped
