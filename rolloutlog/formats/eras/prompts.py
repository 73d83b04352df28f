"""What a rollout was asked, as a digest: rollouts of one inferred group agree in it.

Guarantees: both passes say the same of a line; a prompt that is kept as JSON text is the same as one that isn't. Leaves
out: groups that the source names itself.
"""

from __future__ import annotations

from typing import Any, cast

import msgspec
import orjson
from msgspec import Raw, Struct, UnsetType

from rolloutlog.contract.ids import ID_BYTES, digest_of
from rolloutlog.formats.eras.chat_text import messages_in
from rolloutlog.formats.foreign.glance import Glance, Task

DIGITS = 2 * ID_BYTES


class _Node(Struct):
    """A node, as far as it says what the model was shown first."""

    message: Any = None
    sampled: bool = False


_NODES = msgspec.json.Decoder(list[_Node])


def chat_prompt(line: Glance) -> str:
    """Digest of a chat's prompt (E0); empty where nothing was asked."""
    said = _parsed(line.prompt)
    asked = messages_in(said) if isinstance(said, str) else said
    return _digest(asked) if _says_something(asked) else ""


def trace_prompt(line: Glance) -> str:
    """Digest of what a trace's task says, else of the messages before its first sampled node; empty where none is."""
    task = line.task if isinstance(line.task, Task) else Task()
    data = cast("dict[str, Any]", task.data) if isinstance(task.data, dict) else {}
    asked = [data.get("system_prompt", task.system_prompt), data.get("prompt", task.prompt)]
    if any(map(_says_something, asked)):
        return _digest(asked)
    shown = _shown(line.nodes)
    return _digest(shown) if _says_something(shown) else ""


def _shown(nodes: Any) -> list[Any]:
    """Messages of the nodes before the first sampled one. Raises msgspec.ValidationError."""
    if isinstance(nodes, UnsetType):
        return []
    shown: list[Any] = []
    for node in _NODES.decode(nodes) if isinstance(nodes, Raw) else msgspec.convert(nodes, list[_Node]):
        if node.sampled:
            break
        shown.append(node.message)
    return shown


def _says_something(asked: Any) -> bool:
    """True where there is any text or part to tell it from another prompt by."""
    if isinstance(asked, list):
        return any(map(_says_something, cast("list[Any]", asked)))
    if isinstance(asked, dict) and "content" in asked:
        return _says_something(cast("dict[str, Any]", asked)["content"])
    return bool(cast("Any", asked))


def _parsed(said: Any) -> Any:
    if isinstance(said, UnsetType):
        return None
    return orjson.loads(memoryview(said)) if isinstance(said, Raw) else said


def _digest(asked: Any) -> str:
    return digest_of(orjson.dumps(asked, option=orjson.OPT_SORT_KEYS))[:DIGITS]
