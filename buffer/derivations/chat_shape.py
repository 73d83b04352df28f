"""Whether the messages of a sound record are shaped as a chat's are, so that whoever reads them tests no type again.

Guarantees: total on JSON; what isn't a chat's is named by node and field. A record needn't be a chat to be sound: it is
indexed and trained as it is, and nothing is derived from it. Leaves out: whether the conversation makes sense
(`conversation`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

from rolloutlog.contract.record.trajectory import Trajectory

Json = dict[str, Any]
_PLAIN = {"role", "content"}


def check_chat(trajectory: Trajectory) -> None:
    """Messages and edges of a checked trajectory. Raises ValueError."""
    for index, node in enumerate(cast("list[Json]", trajectory.record["nodes"])):
        said = None if _is_plain(node) else next(_problems(node), None)
        if said is not None:
            raise ValueError(f"node {index}: {said}")


def _is_plain(node: Json) -> bool:
    """True for a message of text alone, as most are."""
    message = cast("Json", node.get("message") or {})
    return "semantic_parents" not in node and message.keys() <= _PLAIN and isinstance(message.get("content"), str)


def _problems(node: Json) -> Iterator[str]:
    if not isinstance(node.get("semantic_parents"), list | None):
        yield "`semantic_parents` isn't a list"
    message = cast("Json", node.get("message") or {})
    content: Any = message.get("content")
    calls: Any = message.get("tool_calls")
    if not isinstance(content, str | list | None) or not _are(content, str, dict):
        yield "`content` is neither text nor a list of parts"
    if not isinstance(message.get("tool_call_id"), str | int | None):
        yield "`tool_call_id` isn't text"
    if not isinstance(calls, list | None) or not _are(calls, dict):
        yield "`tool_calls` isn't a list of objects"
    elif not all(map(_is_call, cast("list[Json]", calls or []))):
        yield "a tool call's `id` isn't text, or its `function` isn't an object"


def _are(items: Any, *kinds: type) -> bool:
    return not isinstance(items, list) or all(isinstance(item, kinds) for item in cast("list[Any]", items))


def _is_call(call: Json) -> bool:
    return isinstance(call.get("id"), str | int | None) and isinstance(call.get("function"), dict | None)
