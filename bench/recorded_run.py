"""Recorded runs of any size, made of the one that comes with the package.

Guarantees: every line is a valid E4 episode with ids of its own, in groups of four; a longer one has more turns, and
more tokens and text in each, in the proportions of the recorded ones. Leaves out: other eras.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import orjson

from rolloutlog.contract.ids import id_of
from rolloutlog.producers.importing.demo_records import demo_run

GROUP_SIZE = 4
ARRAYS = ("token_ids", "mask", "is_content", "logprobs")

Json = dict[str, Any]


def recorded_lines() -> list[bytes]:
    """The lines of the recorded run."""
    return (demo_run() / "rollouts/step_3/train/all/traces.jsonl").read_bytes().splitlines()


def longer(line: bytes, *, turns: int, tokens: int) -> bytes:
    """The episode with so many times its turns, each with so many times its tokens and text."""
    episode = cast("Json", orjson.loads(line))
    trace = cast("Json", episode["traces"][0])
    nodes = [_wider(node, tokens) for node in cast("list[Json]", trace["nodes"])]
    trace["nodes"] = list(nodes)
    for _ in range(turns - 1):
        for node in nodes[1:]:
            trace["nodes"].append({**node, "parent": len(trace["nodes"]) - 1})
    return orjson.dumps(episode)


def write_run(path: Path, lines: list[bytes], size: int) -> int:
    """Write about `size` bytes of the lines, over and over under other ids; returns how many lines."""
    number = 0
    with path.open("wb") as file:
        while file.tell() < size:
            file.write(_renamed(lines[number % len(lines)], number))
            number += 1
    return number


def _wider(node: Json, times: int) -> Json:
    wide = {name: [value for value in node[name] for _ in range(times)] for name in ARRAYS}
    message = cast("Json", node["message"])
    content = message.get("content")
    text = content * times if isinstance(content, str) else content
    return {**node, **wide, "message": {**message, "content": text}}


def _renamed(line: bytes, number: int) -> bytes:
    """The line under ids of its own, of the same length, so nothing else of it changes."""
    episode = cast("Json", orjson.loads(line))
    trace, group = str(episode["traces"][0]["id"]), str(episode["group"]["id"])
    fresh = id_of("bench", number).encode()
    return (
        line.replace(trace.encode(), fresh)
        .replace(str(episode["id"]).encode(), fresh[::-1])
        .replace(group.encode(), b"%036d" % (number // GROUP_SIZE))
        + b"\n"
    )
