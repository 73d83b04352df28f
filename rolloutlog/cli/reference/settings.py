"""The page of settings, from their models.

Guarantees: dotted name, variable, type, default and meaning of each, and when it may change; what a list or a tagged
union holds has a part of its own. Leaves out: combinations that are refused, which the refusal itself explains.
"""

from __future__ import annotations

import inspect
import json
import types
import typing
from collections.abc import Iterator
from enum import StrEnum
from typing import Any, Literal

from pydantic import BaseModel, TypeAdapter
from pydantic.fields import FieldInfo

from rolloutlog.cli.reference import markdown as md
from rolloutlog.contract.derivation_types import derivation_type, derivation_types
from rolloutlog.contract.section import Section
from rolloutlog.contract.settings import Settings
from rolloutlog.settings_sources import variable_of

Model = type[BaseModel]

INTRODUCTION = """\
Settings come from flags, then from variables, then from `--config FILE` or `./rolloutlog.toml`, then from these
defaults. In the file a dotted name is a key of a table: `trainer.staleness.max_staleness` is `max_staleness` under
`[trainer.staleness]`. An unknown key or variable is refused with the nearest name. `rolloutlog config show` prints
what holds and where it comes from.

A setting that may be unset is unset by `none`: `--bootstrap-servers none`,
`ROLLOUTLOG_TRAINER__STALENESS__MAX_STALENESS=none`, or `max_staleness = "none"` in the file. So one that has a
default, or that a file sets, can be unset too. Numbers are finite; infinity and NaN are refused everywhere.

The column "may change" says when:

- *never*: fixed for the life of a run. `rolloutlog topics create` declares them, and a service that has others is
  refused (RunMismatch), since on which partition a record lies, what a shard draws and how attempts are counted follow
  from them, and what is on the log can't be counted anew. For others, declare a run in another namespace.
- *at a start*: the trainer's. It records them on `run` when it starts with others than were recorded last, and every
  final event names the digest of those that judged the group. The other services don't compare them: the bounds on open
  groups follow what was recorded last, within ten seconds.
- *as the topics*: what the topics were made with, if it is given.
- *any time*: each process has its own."""

PLAIN: dict[Any, str] = {
    int: "integer",
    float: "number",
    str: "text",
    bool: "true or false",
    type(None): "unset",
    Any: "anything",
}


def page() -> str:
    """docs/reference/settings.md."""
    rows = [
        (
            md.code(name),
            md.code(variable_of(name)),
            _type(field.annotation),
            _default(field),
            _change(name),
            field.description,
        )
        for name, field in _fields(Settings)
    ]
    parts = [block for model in _parts(Settings) for block in _part(model)]
    return md.page(
        "Settings",
        INTRODUCTION,
        md.table(("setting", "variable", "type", "default", "may change", "means"), rows),
        *parts,
    )


def _change(name: str) -> str:
    """When a setting may change, as those say who compare it."""
    agreed, recorded = Settings().agreed(), Settings().trainer.recorded()
    section, _, rest = name.partition(".")
    if name in ("run", "topics.max_message_bytes") or rest in agreed.get(section, ()):
        return "never"
    if section == "trainer" and rest.split(".")[0] in recorded:
        return "at a start"
    return {"namespace": "names the run", "topics": "as the topics"}.get(section, "any time")


def _part(model: Model) -> tuple[str, str, str]:
    rows = [(md.code(n), _type(f.annotation), _default(f), f.description) for n, f in _fields(model)]
    told = inspect.cleandoc(str(model.__doc__))
    return f"## {model.__name__}", told, md.table(("key", "type", "default", "means"), rows)


def _fields(model: Model, prefix: str = "") -> Iterator[tuple[str, FieldInfo]]:
    """Dotted names of what isn't itself a section."""
    for name, field in model.model_fields.items():
        if _is_model(field.annotation) and field.annotation is not Section:
            yield from _fields(typing.cast("Model", field.annotation), f"{prefix}{name}.")
        else:
            yield prefix + name, field


def _parts(model: Model) -> list[Model]:
    """Models inside lists and unions, in the order in which they are met, and what those hold."""
    found: dict[Model, None] = {}
    for _, field in _fields(model):
        installed = map(derivation_type, derivation_types()) if field.annotation is Section else ()
        for inner in (*_inside(field.annotation), *installed):
            found |= {inner: None, **dict.fromkeys(_parts(inner))}
    return list(found)


def _inside(annotation: Any) -> Iterator[Model]:
    for argument in typing.get_args(annotation):
        if _is_model(argument):
            yield argument
        yield from _inside(argument)


def _is_model(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)


def _type(annotation: Any) -> str:
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (typing.Union, types.UnionType):
        return " or ".join(_type(argument) for argument in arguments)
    if origin is typing.Annotated:
        return _type(arguments[0])
    if origin is dict:
        return f"table of names, each with {_type(arguments[1])}"
    if origin is Literal:
        return " or ".join(md.code(argument) for argument in arguments)
    if origin is list:
        return f"list of {_type(arguments[0])}"
    if isinstance(annotation, type) and issubclass(annotation, StrEnum):
        return " or ".join(md.code(word) for word in annotation)
    if annotation is Section:
        return " or ".join(_type(derivation_type(name)) for name in derivation_types())
    return f"[{annotation.__name__}](#{annotation.__name__.lower()})" if _is_model(annotation) else PLAIN[annotation]


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    value = TypeAdapter(Any).dump_python(field.get_default(call_default_factory=True), mode="json", exclude_none=True)
    return "unset" if value is None else md.code(json.dumps(value))
