"""JSON cut off below a number of levels, so that whatever lies on the log can be printed.

Guarantees: total; what is nested no deeper is printed as it is. Leaves out: length (`escapes`, `table`).
"""

from __future__ import annotations

from typing import Any, cast

LEVELS = 100
CUT = f"(nested deeper than {LEVELS} levels)"


def shallow(value: Any, levels: int = LEVELS) -> Any:
    """The value, in which `CUT` stands for what lies deeper than `levels` objects and lists."""
    if not isinstance(value, dict | list | tuple):
        return value
    if not levels:
        return CUT
    if isinstance(value, dict):
        return {key: shallow(each, levels - 1) for key, each in cast("dict[Any, Any]", value).items()}
    return [shallow(each, levels - 1) for each in cast("list[Any]", value)]
