"""Message nodes of the verifiers v1 trace as columns (design/eras#nodes).

Guarantees: each array of a node is taken out of it once and joined; what is left of the node is its facts, as they were
recorded; per-token facts that a trainer or an orchestrator added later are kept apart, on the response axis. The work
is done column by column, not node by node. Leaves out: soundness of the columns
(`rolloutlog.contract.events.validation`), but for what joining would hide: arrays of one node that disagree.
"""

from __future__ import annotations

import struct
from itertools import chain, compress
from typing import Any, cast

import msgspec
import numpy as np
import numpy.typing as npt
import orjson

from rolloutlog.contract.events.validation import Rejected
from rolloutlog.contract.record.graph import NO_PARENT
from rolloutlog.contract.record.trajectory import NODE_COLUMNS, SEGMENTS, Column, Trajectory
from rolloutlog.contract.vocabulary import RejectReason
from rolloutlog.contract.wire.arrays import rounded
from rolloutlog.formats.foreign.json_parts import Json

LATE = ("advantages", "reference_logprobs", "trainer_logprobs", "entropies", "loss_weights")
"""Arrays of a node that are added after it was sampled."""
DECIMALS = 4
"""verifiers 0.4.0 rounds log-probs in its JSON to so many (design/eras#nodes)."""
PRECISION = 1e-4
UNSAID = 2
"""In the column `is_content`: the source doesn't say."""


class Graph:
    """Nodes of the traces of one episode, in order: a forest whose trees belong to agents."""

    __slots__ = ("_content", "_logprobs", "_mask", "_rows", "_token_ids", "_version", "facts", "late")

    def __init__(self, version: int | None) -> None:
        """`version` of the policy that sampled them, on timeline 0: one segment for each node with sampled tokens."""
        self._version = version
        self.facts: list[Json] = []
        self.late: dict[str, list[float | None]] = {}
        """Late facts by name, one entry per response token; None where a node has none."""
        self._rows: list[tuple[int, int, int, int, int]] = []
        self._token_ids: list[int] = []
        self._logprobs: list[float] = []
        self._mask: list[bytes] = []
        self._content: list[bytes] = []

    def add(self, nodes: list[Json], agent: int = 0) -> int:
        """Take the nodes of one trace, which lose their arrays; returns the index of the first. Raises Rejected."""
        base = len(self.facts)
        tokens, masks = _taken(nodes, "token_ids"), _taken(nodes, "mask")
        logprobs, contents = _taken(nodes, "logprobs"), _taken(nodes, "is_content")
        counts = _lengths(tokens, masks, contents)
        sampled = list(map(len, logprobs))
        self._take_late(nodes, masks, sampled)
        self._rows += self._rows_of(nodes, base, counts, sampled, agent)
        self._token_ids += chain.from_iterable(tokens)
        self._mask += map(_octets, masks)
        self._content += map(bytes, contents)
        self._logprobs += chain.from_iterable(logprobs)
        self.facts += nodes
        if base:
            _shift_links(nodes, base)
        return base

    def trajectory(self, record: Json, *, rounds: bool = False) -> Trajectory:
        """Columns and record. `rounds`: the producer is one that rounds log-probs; that it did is seen in them.

        Raises Rejected.
        """
        logprobs = _packed("d", self._logprobs, list[float])
        if rounds and len(logprobs) and (np.round(logprobs, DECIMALS) == logprobs).all():
            record["logprob_precision"] = PRECISION
        record["nodes"] = self.facts
        rows = np.array(self._rows, np.int32).reshape(-1, NODE_COLUMNS)
        segments = np.zeros((sum(row[SEGMENTS] for row in self._rows), 3), np.int32)
        segments[:, 1] = self._version or 0
        content = b"".join(self._content)
        is_said = content.count(UNSAID) < len(content)
        return Trajectory(
            record_text=orjson.dumps(record),  # of parsed JSON, so nothing in it is NaN; sums are checked as rewards
            token_ids=_packed("i", self._token_ids, list[int]),
            logprobs=rounded(logprobs),
            mask=np.frombuffer(b"".join(self._mask), np.uint8),
            segments=segments,
            nodes=rows,
            columns={"is_content": Column(np.frombuffer(content, np.uint8), "token")} if is_said else None,
            record=record,
        )

    def _rows_of(
        self, nodes: list[Json], base: int, counts: list[int], sampled: list[int], agent: int
    ) -> list[tuple[int, int, int, int, int]]:
        """Rows of the table of nodes. Raises Rejected(parent)."""
        rows: list[tuple[int, int, int, int, int]] = []
        for index, node in enumerate(nodes):
            parent = node.pop("parent", None)
            if parent is None:
                parent = NO_PARENT
            elif not isinstance(parent, bool) and 0 <= parent < index:
                parent += base
            else:
                raise Rejected(RejectReason.PARENT, f"node {index} has parent {parent}")
            segments = int(self._version is not None and sampled[index] > 0)
            rows.append((parent, counts[index], sampled[index], segments, agent))
        return rows

    def _take_late(self, nodes: list[Json], masks: list[Any], sampled: list[int]) -> None:
        at = len(self._logprobs)
        for node, mask, size in zip(nodes, masks, sampled, strict=True):
            if not node.keys().isdisjoint(LATE):
                for name in LATE:
                    if name in node:
                        self._add_late(name, node.pop(name), mask, at)
            at += size
        for values in self.late.values():
            values.extend([None] * (at - len(values)))

    def _add_late(self, name: str, values: Any, mask: Any, at: int) -> None:
        """Keep the sampled tokens' values of a node whose first is response token `at`."""
        if isinstance(values, dict):
            for part, weights in cast("Json", values).items():
                self._add_late(f"{name}.{part}", weights, mask, at)
        elif values is not None:
            kept = self.late.setdefault(name, [])
            kept += [None] * (at - len(kept))
            kept += compress(values, mask) if len(values) == len(mask) else values


def _taken(nodes: list[Json], name: str) -> list[Any]:
    return [node.pop(name, None) or () for node in nodes]


def _lengths(tokens: list[Any], masks: list[Any], contents: list[Any]) -> list[int]:
    """Tokens per node. Where a node doesn't say what is content, its part of `contents` is filled. Raises Rejected."""
    counts = list(map(len, tokens))
    if counts != list(map(len, masks)):
        raise _unequal("mask", counts, masks)
    if counts != list(map(len, contents)):
        contents[:] = [part or bytes([UNSAID]) * count for part, count in zip(contents, counts, strict=True)]
        if counts != list(map(len, contents)):
            raise _unequal("is_content", counts, contents)
    return counts


def _unequal(name: str, counts: list[int], arrays: list[Any]) -> Rejected:
    node = next(i for i, (count, values) in enumerate(zip(counts, arrays, strict=True)) if count != len(values))
    said = f"node {node}: {counts[node]} token ids, but {name} has {len(arrays[node])} entries"
    return Rejected(RejectReason.LENGTHS, said)


def _octets(mask: list[bool] | tuple[()]) -> bytes:
    """A mask as bytes. Most have no true, which is seen ten times faster than each of them is turned into a byte."""
    return bytes(len(mask)) if mask and mask.count(False) == len(mask) else bytes(mask)


def _shift_links(nodes: list[Json], base: int) -> None:
    """Declared edges name nodes of their own trace; in the forest these lie `base` further on."""
    for node in nodes:
        if links := node.get("semantic_parents"):
            node["semantic_parents"] = [{**link, "node": link["node"] + base} for link in links]


def _packed(code: str, values: list[Any], kind: type[list[Any]]) -> npt.NDArray[Any]:
    """A list of numbers as an array of C `code`, in half the time that numpy takes. Raises Rejected."""
    try:
        msgspec.convert(values, kind)  # a true is no number, though packing would make it 1
        return np.frombuffer(struct.pack(f"={len(values)}{code}", *values), np.dtype(code))
    except (struct.error, msgspec.ValidationError) as error:
        reason = RejectReason.LOGPROBS if code == "d" else RejectReason.SHAPE
        name = "a log-prob" if code == "d" else "a token id"
        raise Rejected(reason, f"{name} doesn't fit its column: {error}") from error
