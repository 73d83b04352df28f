"""Columns of a chat that are kept as JSON text, as hosted downloads have them.

Guarantees: text that is a list of messages becomes messages, whatever key they begin with, and is never taken for one
message that says it; text that begins as such a list and can't be read is refused; any other text stays text. Leaves
out: what messages look like (`chat`).
"""

from __future__ import annotations

import re
from typing import Any, cast

from rolloutlog.contract.vocabulary import RejectReason
from rolloutlog.contract.wire.json_text import parse
from rolloutlog.contract.wire.rejection import Rejected
from rolloutlog.formats.foreign.json_parts import Json

OBJECTS = ("info", "metrics", "timing", "token_usage")
LISTS = ("trajectory", "tool_defs")

ROLES = ("system", "user", "assistant", "tool", "developer", "function")

SAYINGS = ("content", "tool_calls", "function_call", "reasoning_content", "reasoning", "refusal")
"""What is said in a message: an object that has a role and none of them may be anything."""
OF_A_MESSAGE = ("role", "name", "tool_call_id", "thinking_blocks", "audio", *SAYINGS)

_MAY_BE_ONE = re.compile(r"""["\s\\]*\[?\s*\{\s*\\*["']""")
_BEGINS_AS_ONE = re.compile(rf"""["\s\\]*\[?\s*\{{\s*\\*["'](?:{"|".join(OF_A_MESSAGE)})\\*["']\s*:""")
_HAS_A_ROLE = re.compile(rf"""["']role\\*["']\s*:\s*\\*["'](?:{"|".join(ROLES)})\\*["']""")


def messages_in(text: str) -> list[Json] | str:
    """The messages that a text holds; the text itself where it holds none. Raises Rejected(shape)."""
    if not _MAY_BE_ONE.match(text) or not _HAS_A_ROLE.search(text):
        return text
    begins_as_one = _BEGINS_AS_ONE.match(text) is not None
    try:
        said = parse(text)
    except Rejected as rejected:
        if not begins_as_one:
            return text
        raise Rejected(RejectReason.SHAPE, f"a chat kept as text: {rejected.detail}") from rejected
    if isinstance(said, str):
        return messages_in(said)
    found = cast("list[Any]", said if isinstance(said, list) else [said])
    messages = sum(_is_message(part, begins_as_one) for part in found)
    if begins_as_one and 0 < messages < len(found):
        raise Rejected(RejectReason.SHAPE, f"of a chat kept as text {len(found) - messages} parts are no messages")
    return found if messages == len(found) else text


def _is_message(said: Any, begins_as_one: bool) -> bool:
    """True for what has a role, and says something unless its first key showed already what it is."""
    if not isinstance(said, dict) or cast("Json", said).get("role") not in ROLES:
        return False
    return begins_as_one or not cast("Json", said).keys().isdisjoint(SAYINGS)


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
