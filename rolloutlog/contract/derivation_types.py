"""Types of derivations, found by entry point: whoever offers one says what its settings are.

Guarantees: settings name a type by `type`, and are validated by the class that the entry point of that name in the
group that is called `GROUP` leads to; a type that isn't installed is refused with those that are. Leaves out: what
a derivation does (`rolloutlog.buffer.derivations.protocol`).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Annotated, Any, cast

from pydantic import BeforeValidator, SerializeAsAny, ValidationError

from rolloutlog.contract.section import Section

GROUP = "rolloutlog.derivations"
HOOKS = ("anchors", "prompt", "takes", "tokens")
"""What every derivation has; `takes` and `tokens` are given to those that subclass `DerivationSection`."""
DEFAULT = "continue"
"""The type of a derivation that doesn't say it."""


def derivation_types() -> list[str]:
    """Names of all that are installed."""
    return sorted(entry_points(group=GROUP).names)


@cache
def derivation_type(name: str) -> type[Section]:
    """The class of settings, and of what they do, that is installed under that name.

    Raises ValueError where none is, or what is can't be settings.
    """
    found = entry_points(group=GROUP, name=name)
    if not found:
        raise ValueError(f"no derivation of type {name!r} is installed; there are {', '.join(derivation_types())}")
    if len(places := sorted({point.value for point in found})) > 1:
        raise ValueError(f"two packages offer a derivation {name!r}: {' and '.join(places)}; uninstall one")
    return _loaded(next(iter(found)))


def _loaded(point: EntryPoint) -> type[Section]:
    """What an entry point leads to, if it is one. What a hook does is checked where it is called."""
    try:
        offered = point.load()
    except (ImportError, AttributeError) as error:
        raise ValueError(f"the derivation {point.name!r} can't be loaded from {point.value}: {error}") from error
    if not (isinstance(offered, type) and issubclass(offered, Section)):
        raise ValueError(f"the derivation {point.name!r} ({point.value}) isn't a Section of settings")
    if missing := [hook for hook in HOOKS if not callable(getattr(offered, hook, None))]:
        raise ValueError(f"the derivation {point.name!r} ({point.value}) has no {' and no '.join(missing)}")
    field = offered.model_fields.get("type")
    if field is None or field.default != point.name:
        raise ValueError(f"the derivation {point.name!r} ({point.value}) must have a field `type` of that name")
    return offered


def _validated(given: Any) -> Any:
    if not isinstance(given, Mapping):
        return given
    options = cast("Mapping[str, Any]", given)
    if not isinstance(name := options.get("type", DEFAULT), str):
        raise ValueError(f"`type` says which derivation it is: {', '.join(derivation_types())}")
    try:
        return derivation_type(name).model_validate(dict(options))
    except ValidationError as error:
        faults = (f"{'.'.join(map(str, fault['loc'])) or name}: {fault['msg']}" for fault in error.errors())
        raise ValueError("; ".join(faults)) from error


def default_derivation() -> Section:
    """The derivation of which nothing is said."""
    return derivation_type(DEFAULT)()


Derive = Annotated[SerializeAsAny[Section], BeforeValidator(_validated)]
"""Settings of one derivation, tagged by `type`; the types are those that are installed."""
