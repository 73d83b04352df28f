"""A long value as people look at it: token ids and log-probs by their first and last, a row a node of the graph.

Guarantees: pure; as deep and as long as the value may be, what is shown is short, and says how much there is. Leaves
out: what scripts need, which `--json` prints whole.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, cast

FIRST, LAST = 3, 1
TEXT, LINE, ITEMS, DEPTH = 200, 160, 8, 6
EMPTY: tuple[Any, ...] = (None, "", [], {})

NODE_COLUMNS = ("node", "parent", "role", "sampled", "tokens", "token ids", "log-probs", "text")


def brief(value: Any, depth: int = 0) -> Any:
    """The same JSON with long texts, lists and nesting cut."""
    if isinstance(value, str):
        return value if len(value) <= TEXT else f"{value[:TEXT]}… ({len(value)} characters)"
    if not isinstance(value, (dict, list)) or not value:
        return cast("Any", value)
    if depth == DEPTH:
        return "…"
    if isinstance(value, dict):
        return {name: brief(inner, depth + 1) for name, inner in cast("dict[str, Any]", value).items()}
    items = cast("list[Any]", value)
    if len(items) > ITEMS and all(isinstance(item, (int, float)) for item in items):
        return few(items)
    more = [f"… ({len(items)} in all)"] if len(items) > ITEMS else []
    return [brief(item, depth + 1) for item in items[:ITEMS]] + more


def one_line_each(facts: dict[str, Any]) -> dict[str, str]:
    """Facts by name, each on a line; what says nothing is left out."""
    texts = {name: json.dumps(brief(fact), ensure_ascii=False) for name, fact in facts.items() if fact not in EMPTY}
    return {name: text if len(text) <= LINE else f"{text[:LINE]}…" for name, text in texts.items()}


def few(numbers: Sequence[float]) -> str:
    """The first and the last of many numbers."""
    texts = [f"{number:g}" for number in numbers]
    if len(texts) <= FIRST + LAST:
        return " ".join(texts)
    return f"{' '.join(texts[:FIRST])} … {' '.join(texts[-LAST:])}"


def is_rollout(value: Any) -> bool:
    """True for a rollout's value, in whatever encoding it came."""
    return isinstance(value, dict) and {"record", "nodes", "token_ids", "logprobs"} <= value.keys()


def node_rows(value: dict[str, Any]) -> list[tuple[Any, ...]]:
    """A row a node: what it says, and its tokens."""
    rows: list[tuple[Any, ...]] = []
    nodes: list[Any] = value["record"].get("nodes") or []
    ids = logprobs = 0
    for number, node in enumerate(value["nodes"]):
        tokens, sampled = node["tokens"], node["sampled_tokens"]
        message: Any = nodes[number].get("message") if number < len(nodes) and isinstance(nodes[number], dict) else None
        role, text = _role_and_text(message)
        parent = None if node["parent"] < 0 else node["parent"]
        cut = (few(value["token_ids"][ids : ids + tokens]), few(value["logprobs"][logprobs : logprobs + sampled]))
        rows.append((number, parent, role, sampled or None, tokens, *cut, text))
        ids, logprobs = ids + tokens, logprobs + sampled
    return rows


def _role_and_text(message: Any) -> tuple[str | None, str]:
    """Role and text of a message; calls of tools stand for a text."""
    if not isinstance(message, dict):
        return None, ""
    known = cast("dict[str, Any]", message)
    content = known.get("content") or known.get("tool_calls") or ""
    text = content if isinstance(content, str) else str(brief(content))
    return str(known.get("role", "")), brief(" ".join(text.split()))
