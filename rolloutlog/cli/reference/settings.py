"""The page of settings, from their models.

Guarantees: dotted name, variable, type, default and meaning of each, sections and tagged unions resolved. Leaves out:
combinations that are refused, which the refusal itself explains.
"""

from __future__ import annotations

import typing
from collections.abc import Iterator
from typing import Any, Literal

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from rolloutlog.cli.config import variable_of
from rolloutlog.cli.reference import markdown as md
from rolloutlog.contract.settings import DerivationSettings, Settings

INTRODUCTION = """\
Settings come from flags, then from variables, then from `--config FILE` or `./rolloutlog.toml`, then from these defaults.
In the file a dotted name is a key of a table: `trainer.staleness.max_staleness` is `max_staleness` under
`[trainer.staleness]`. An unknown key or variable is refused with the nearest name. `rolloutlog config show` prints what
holds and where it comes from."""

COLUMNS = ("setting", "variable", "type", "default", "means")


def page() -> str:
    """docs/reference/settings.md."""
    variants = {model for section in _sections(Settings) for model in _variants(section)}
    blocks = [
        block
        for model in (DerivationSettings, *sorted(variants, key=lambda model: model.__name__))
        for block in (f"## {_title(model)}", (model.__doc__ or "").strip(), md.table(COLUMNS[:1] + COLUMNS[2:], _keys(model)))
    ]
    return md.page("Settings", INTRODUCTION, md.table(COLUMNS, _rows(Settings)), *blocks)


def _rows(model: type[BaseModel], prefix: str = "") -> Iterator[tuple[object, ...]]:
    for name, field in model.model_fields.items():
        inner = _section(field)
        if inner is not None:
            yield from _rows(inner, f"{prefix}{name}.")
        else:
            dotted = prefix + name
            yield md.code(dotted), md.code(variable_of(dotted)), _type(field.annotation), _default(field), field.description


def _keys(model: type[BaseModel], prefix: str = "") -> Iterator[tuple[object, ...]]:
    for row in _rows(model, prefix):
        yield row[0], *row[2:]
