"""Foreign text on a terminal: what would steer it, or show nothing, is shown as text.

Guarantees: what `shown` and `shown_json` return moves no cursor, changes no colour or direction, starts no line, and
can be encoded; JSON stays the same JSON. One pair of functions, used for everything that commands print (`output`).
Leaves out: layout.
"""

from __future__ import annotations

from collections.abc import Callable

JOINERS = "\u200c\u200d"
"""Unprintable by the book, and needed inside words and emoji."""


def shown(text: str) -> str:
    """Text with escape sequences, control and bidi characters, line breaks and lone surrogates spelled out."""
    return _without_hidden(text, lambda hidden: hidden.encode("unicode_escape").decode())


def shown_json(text: str) -> str:
    """The same for JSON on one line, where such characters can only stand inside of strings."""
    return _without_hidden(text, _unit_escapes)


def _without_hidden(text: str, escape: Callable[[str], str]) -> str:
    if text.isprintable():
        return text
    return "".join(each if _is_seen(each) else escape(each) for each in text)


def _is_seen(each: str) -> bool:
    """Printable, a joiner, or a space of another width."""
    return each.isprintable() or each in JOINERS or (each.isspace() and each > "\xa0" and each not in "\u2028\u2029")


def _unit_escapes(hidden: str) -> str:
    """As JSON spells it: by UTF-16 units."""
    units = hidden.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[i : i + 4]}" for i in range(0, len(units), 4))
