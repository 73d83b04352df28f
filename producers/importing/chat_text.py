"""Columns of a chat that are kept as JSON text, as hosted downloads have them.

Guarantees: text that is a list of messages becomes messages, and is never taken for one message that says it; text that
begins as such a list and can't be read is refused; any other text stays text. Leaves out: what messages look like
(`chat`).
"""

from __future__ import annotations

import re
from typing import Any, cast

from rolloutlog.contract.json_text import parse
from rolloutlog.contract.rejection import Rejected
from rolloutlog.contract.vocabulary import RejectReason
from rolloutlog.producers.importing.foreign import Json

OBJECTS = ("info", "metrics", "timing", "token_usage")
LISTS = ("trajectory", "tool_defs")

ROLES = ("system", "user", "assistant", "tool", "developer", "function")

_BEGINS_AS_ONE = re.compile(r"""["\s\\]*\[?\s*\{\s*\\*["'](?:role|content|tool_calls|tool_call_id|name)\\*["']\s*:""")
_HAS_A_ROLE = re.compile(rf"""["']role\\*["']\s*:\s*\\*["'](?:{"|".join(ROLES)})\\*["']""")


def messages_in(text: str) -> list[Json] | str:
    """The messages that a text holds; the text itself where it holds none. Raises Rejected(shape)."""
    if not _BEGINS_AS_ONE.match(text) or not _HAS_A_ROLE.search(text):
        return text
    try:
        said = parse(text)
    except Rejected as rejected:
        raise Rejected(RejectReason.SHAPE, f"a chat kept as text: {rejected.detail}") from rejected
    if isinstance(said, str):
        return messages_in(said)
    found = cast("list[Any]", said if isinstance(said, list) else [said])
    messages = sum(map(_is_message, found))
    if 0 < messages < len(found):
        raise Rejected(RejectReason.SHAPE, f"of a chat kept as text {len(found) - messages} parts are no messages")
    return found if messages else text


def _is_message(said: Any) -> bool:
    return isinstance(said, dict) and cast("Json", said).get("role") in ROLES


def unpack(line: Json) -> None:
    """Read in place the other columns that are kept as text; an empty text is none. Raises Rejected(shape)."""
    for names, kind in ((OBJECTS, dict), (LISTS, list)):
        for name in names:
            text = line.get(name)
            if isinstance(text, str):
                line[name] = _value_in(name, text, kind)


def _value_in(name: str, text: str, kind: type) -> Any:
    if not text.strip():
        return None
    try:
        said = parse(text)
    except Rejected as rejected:
        if name == "info":
            return text
        raise Rejected(RejectReason.SHAPE, f"`{name}` is a text: {rejected.detail}") from rejected
    if said is not None and not isinstance(said, kind) and name != "info":
        raise Rejected(RejectReason.SHAPE, f"`{name}` is a text of {type(said).__name__}, not of {kind.__name__}")
    return said
