"""Access to JSON that somebody else wrote.

Guarantees: an object that is absent or null is empty, one of another type is a TypeError that names it. Leaves out:
what the objects mean.
"""

from __future__ import annotations

from typing import Any, cast

Json = dict[str, Any]


def part(whole: Json, name: str) -> Json:
    """The object under a key; empty where there is none. Raises TypeError."""
    value: Any = whole.get(name)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise TypeError(f"`{name}` is {type(value).__name__}, not an object")
    return cast("Json", value)


def items(whole: Json, name: str) -> list[Json]:
    """The list of objects under a key; empty where there is none. Raises TypeError."""
    value: Any = whole.get(name)
    if value is None:
        return []
    if not isinstance(value, list):
        raise TypeError(f"`{name}` is {type(value).__name__}, not a list")
    return cast("list[Json]", value)
