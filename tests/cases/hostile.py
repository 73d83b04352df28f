"""JSON as anybody may write it, inside records that are otherwise sound: other types, keys, sizes and depths.

Guarantees: columns, headers and digest of a record are right, so that what is judged is its JSON; a value is put at any
of the places that readers look at. Leaves out: bytes that aren't JSON (`bad_inputs`).
"""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import pairwise
from typing import Any, cast

import orjson
from hypothesis import strategies as st

from rolloutlog.contract.record.node import Node
from rolloutlog.contract.record.rollout import Rollout
from rolloutlog.contract.record.trajectory import Trajectory
from rolloutlog.contract.record.value import encode
from tests.buffer.events_by_hand import slot, tool_turns
from tests.cases.raw import Raw

Path = tuple[str | int, ...]
DEEP = re.compile(rb'"\$deep:(\d+)"')
DEPTHS = (200, 252, 253, 254, 300, 800, 990, 1000, 1100)
"""orjson writes 254 levels and reads 1,024; Python's own recursion ends near 1,000."""
deep = st.sampled_from(DEPTHS).map("$deep:{}".format)

KEYS = (
    "", "role", "content", "text", "type", "tool_calls", "tool_call_id", "function", "name", "arguments", "id", "node",
    "root", "data", "image", "prompt", "score", "weight", "trainable", "reward", "trace", "record", "prime_rl", "group",
    "group_id", "semantic_parents", "compaction", "start", "end", "config", "idx",
)  # fmt: skip
scalars = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**63), 2**64 - 1), st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from(["", "NaN", "Infinity", "\x00", "\x1b[31m", "\U0001f600", "a", "compaction", "assistant", "tool"]),
    deep,
)  # fmt: skip
keys = st.sampled_from(KEYS) | st.text(st.characters(exclude_categories=["Cs"]), max_size=3)
json_values: st.SearchStrategy[Any] = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=4), max_leaves=8
)
"""Any JSON that orjson reads, with the words of a record as keys and values."""

MESSAGE = [("nodes", 2, "message"), ("nodes", 3, "message"), ("nodes", 6, "message")]
PLACES: list[Path] = [
    *(
        (*message, key)
        for message in MESSAGE
        for key in ("role", "content", "tool_calls", "tool_call_id", "reasoning_content", "name")
    ),
    *(("nodes", 2, "message", "tool_calls", 0, key) for key in ("id", "function", "name", "arguments")),
    *(("nodes", 2, key) for key in ("message", "semantic_parents", "sampled", "timestamp", "usage", "finish_reason")),
    *((key,) for key in ("task", "info", "errors", "agents", "stop_condition", "reward", "grain", "episode")),
    *((key,) for key in ("rewards", "replay_task", "timing", "metrics", "group_id", "id", "is_completed", "tags", "")),
    *(("task", key) for key in ("data", "image", "idx", "name")),
    ("agents", 0), ("agents", 0, "root"), ("agents", 0, "trace"), ("agents", 0, "name"), ("agents", 0, "record"),
    ("info", "prime_rl"), ("info", "group_id"), ("info", "snapshots"), ("info", "snapshots", "3"),
    ("info", "snapshots", "x"),     ("nodes", 3), ("nodes",),
]  # fmt: skip
"""Where readers look: messages, edges, agents, task, stamps and snapshots."""


def put(record: dict[str, Any], path: Path, said: Any) -> None:
    """Say it at that place; lists and objects on the way are made."""
    at: Any = record
    for step, following in pairwise(path):
        if isinstance(step, str):
            made: Any = [{}] if isinstance(following, int) else {}
            if not isinstance(at.get(step), type(made)) or not at[step]:
                at[step] = made
            at = at[step]
        else:
            if not isinstance(at[step], dict):
                at[step] = {}
            at = at[step]
    at[path[-1]] = said


def text_of(record: dict[str, Any]) -> bytes:
    """The JSON text, `$deep:n` as objects in one another."""
    levels = lambda found: b'{"a":' * int(found[1]) + b"1" + b"}" * int(found[1])  # noqa: E731
    return DEEP.sub(levels, orjson.dumps(record))


def sampled(node: Node) -> Node:
    """Two tokens of policy (0, 0) where a model said it."""
    if not node.sampled:
        return node
    return replace(node, token_ids=[5, 6], mask=[1, 1], logprobs=[-0.5, -0.25], segments=[(0, 0, 0)])


def told(name: str, member: int, changes: dict[Path, Any]) -> Raw:
    """A rollout with two whole tool turns whose record says these things."""
    known = {"reward": float(member), "task": {"prompt": "task"}}
    built = Trajectory.build([sampled(node) for node in tool_turns(2)], known)
    record = cast("dict[str, Any]", orjson.loads(built.record_text))
    for path, said in sorted(changes.items(), key=lambda change: -len(change[0])):
        put(record, path, said)
    columns = {column: getattr(built, column) for column in ("token_ids", "logprobs", "mask", "segments", "nodes")}
    changed = Trajectory(record_text=text_of(record), **columns)
    return Raw.of(Rollout(slot(name, member), built)).holding(encode(changed))


changes = st.dictionaries(st.sampled_from(PLACES), json_values, min_size=1, max_size=3)
hostile = st.builds(told, st.sampled_from("abc"), st.integers(0, 1), changes)
"""A record as it lies on the log."""
