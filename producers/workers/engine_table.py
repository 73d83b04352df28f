"""Engines by name: installed ones, and objects of one's own (design/live-loop#engine).

Guarantees: an installed one is found by the entry point `rolloutlog.engines`, which leads to what makes it from its
options (`worker.engine`); whatever is wrong with either is a typed error that says which. Leaves out: what they do.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import entry_points
from typing import Any

from rolloutlog.contract.errors import RolloutlogError, SettingsError
from rolloutlog.contract.wire.refusal import line_of
from rolloutlog.producers.workers.engine import Engine
from rolloutlog.producers.workers.environment import load

GROUP = "rolloutlog.engines"
_METHODS = ("render", "sample")


def engine_named(name: str, options: Mapping[str, Any]) -> Engine:
    """The engine at `module:name`, or the installed one of that name. Raises SettingsError, MissingExtra."""
    if ":" not in name:
        return _installed(name, options)
    if options:
        raise SettingsError(f"worker.engine has options, which {name!r} isn't given", "an installed engine has options")
    return load(name, *_METHODS)


def _installed(name: str, options: Mapping[str, Any]) -> Engine:
    found = {point.name: point for point in entry_points(group=GROUP)}
    if name not in found:
        known = ", ".join(sorted(found)) or "none"
        raise SettingsError(f"no engine {name!r} is installed (entry points {GROUP})", f"there are {known}")
    try:
        made = found[name].load()(**options)
    except RolloutlogError:
        raise
    except (Exception, SystemExit) as error:  # it is foreign code, which may also leave the program
        raise SettingsError(f"the engine {name!r} can't be made: {line_of(error)}") from error
    if missing := [method for method in _METHODS if not callable(getattr(made, method, None))]:
        raise SettingsError(f"the engine {name!r} has no method {missing[0]}")
    return made
