"""The page of settings, from their models.

Guarantees: dotted name, variable, type, default and meaning of each; what a list or a tagged union holds has a part
of its own. Leaves out: combinations that are refused, which the refusal itself explains.
"""

from __future__ import annotations

import json
import types
import typing
from collections.abc import Iterator
from enum import StrEnum
from typing import Any, Literal

from pydantic import BaseModel, TypeAdapter
from pydantic.fields import FieldInfo

from rolloutlog.cli.config import variable_of
from rolloutlog.cli.reference import markdown as md
from rolloutlog.contract.settings import Settings

Model = type[BaseModel]

INTRODUCTION = """\
Settings come from flags, then from variables, then from `--config FILE` or `./rolloutlog.toml`, then from these
defaults. In the file a dotted name is a key of a table: `trainer.staleness.max_staleness` is `max_staleness` under
`[trainer.staleness]`. An unknown key or variable is refused with the nearest name. `rolloutlog config show` prints
what holds and where it comes from."""

PLAIN: dict[Any, str] = {int: "integer", float: "number", str: "text", bool: "true or false", type(None): "unset"}


def page() -> str:
    """docs/reference/settings.md."""
    rows = [
        (md.code(name), md.code(variable_of(name)), _type(field.annotation), _default(field), field.description)
        for name, field in _fields(Settings)
    ]
    parts = [block for model in _parts(Settings) for block in _part(model)]
    return md.page(
        "Settings", INTRODUCTION, md.table(("setting", "variable", "type", "default", "means"), rows), *parts
    )


def _part(model: Model) -> tuple[str, str, str]:
    rows = [(md.code(n), _type(f.annotation), _default(f), f.description) for n, f in _fields(model)]
    return f"## {model.__name__}", str(model.__doc__), md.table(("key", "type", "default", "means"), rows)


def _fields(model: Model, prefix: str = "") -> Iterator[tuple[str, FieldInfo]]:
    """Dotted names of what isn't itself a section."""
    for name, field in model.model_fields.items():
        if _is_model(field.annotation):
            yield from _fields(typing.cast("Model", field.annotation), f"{prefix}{name}.")
        else:
            yield prefix + name, field


def _parts(model: Model) -> list[Model]:
    """Models inside lists and unions, in the order in which they are met, and what those hold."""
    found: dict[Model, None] = {}
    for _, field in _fields(model):
        for inner in _inside(field.annotation):
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
    if origin is Literal:
        return " or ".join(md.code(argument) for argument in arguments)
    if origin is list:
        return f"list of {_type(arguments[0])}"
    if isinstance(annotation, type) and issubclass(annotation, StrEnum):
        return " or ".join(md.code(word) for word in annotation)
    return f"[{annotation.__name__}](#{annotation.__name__.lower()})" if _is_model(annotation) else PLAIN[annotation]


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    value = TypeAdapter(Any).dump_python(field.get_default(call_default_factory=True), mode="json", exclude_none=True)
    return "unset" if value is None else md.code(json.dumps(value))
