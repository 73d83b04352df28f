"""A conversation as text that somebody can judge, bounded whatever it holds (decisions/replay#76 to #78).

Guarantees: `transcript` is at most `limit` characters, its head included; it begins with the first two messages and
ends with the last that fit; a message, or a call's arguments, that is cut says how long it was. The work is linear in
what is shown, not in what is left out. Leaves out: reasoning, which isn't shown, and what is asked about it (`judge`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from rolloutlog.contract.record.node import Message

SHARE = 20
"""No message takes more than this part of the limit."""
CALL_CHARS = 500
HEAD = 2
BETWEEN = "\n\n"


def transcript(messages: Sequence[Message], limit: int) -> str:
    """Blocks of `[ROLE]` and text; where not all fit, the first two, the last ones, and how many lie between."""
    cap = max(limit // SHARE, 1)
    head = [_block(message, cap) for message in messages[:HEAD]]
    left = limit - sum(len(block) + len(BETWEEN) for block in head) - len(_gap(len(messages)))
    tail: list[str] = []
    for message in reversed(messages[HEAD:]):
        block = _block(message, cap)
        left -= len(block) + len(BETWEEN)
        if left < 0:
            break
        tail.append(block)
    elided = len(messages) - len(head) - len(tail)
    return BETWEEN.join([*head, *([_gap(elided)] if elided else []), *reversed(tail)])[:limit]


def said_alone(messages: Sequence[Message], limit: int) -> str:
    """The texts on end; of more than `limit` characters the last ones."""
    return "".join(_text(message.get("content"), limit) for message in messages)[-limit:]


def _gap(count: int) -> str:
    return f"[... {count} messages elided ...]"


def _block(message: Message, cap: int) -> str:
    lines = [_cut(_text(message.get("content"), cap), cap), *map(_call, message.get("tool_calls") or ())]
    return "\n".join([f"[{str(message.get('role')).upper()}]", *filter(None, lines)])


def _text(content: Any, cap: int) -> str:
    """Text of a message's content; a part that isn't text is named by its type."""
    if not isinstance(content, list):
        return "" if content is None else str(content)
    parts = cast("list[Any]", content)
    return "\n".join(part if isinstance(part, str) else _part(part) for part in parts[: cap + 1])


def _part(part: dict[str, Any]) -> str:
    return str(part.get("text") or "") if part.get("type") == "text" else f"[{part.get('type')}]"


def _call(call: dict[str, Any]) -> str:
    named: dict[str, Any] = call.get("function") or call
    arguments = str(named.get("arguments") or "")
    shown = arguments if len(arguments) <= CALL_CHARS else f"{arguments[:CALL_CHARS]}…[truncated]"
    return f"[TOOL CALL] {named.get('name')}({shown})"


def _cut(text: str, cap: int) -> str:
    return text if len(text) <= cap else f"{text[:cap]}\n[... truncated, {len(text)} chars total]"
