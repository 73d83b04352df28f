"""Message nodes of the verifiers v1 trace as columns (reference prime_verifiers 1.2 and 1.3).

Guarantees: each array of a node is taken out of it once and joined; what is left of the node is its facts, as they were
recorded; per-token facts that a trainer or an orchestrator added later are kept apart, on the response axis. Leaves
out: soundness of the columns (`rolloutlog.contract.checks`), but for what joining would hide: arrays of one node that
disagree.
"""

from __future__ import annotations

import struct
from itertools import compress
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import orjson

from rolloutlog.contract.checks import Rejected
from rolloutlog.contract.graph import NO_PARENT
from rolloutlog.contract.trajectory import NODE_COLUMNS, SAMPLED, SEGMENTS, Column, Trajectory
from rolloutlog.contract.vocabulary import RejectReason

LATE = ("advantages", "reference_logprobs", "trainer_logprobs", "entropies", "loss_weights")
"""Arrays of a node that are added after it was sampled."""
DECIMALS = 4
"""verifiers 0.4.0 rounds log-probs in its JSON to so many (reference prime_verifiers 1.2)."""
PRECISION = 1e-4
UNSAID = 2
"""In the column `is_content`: the source doesn't say."""


class Graph:
    """Nodes of the traces of one episode, in order: a forest whose trees belong to agents."""

    __slots__ = ("_content", "_late", "_logprobs", "_mask", "_rows", "_says_content", "_token_ids", "facts")

    def __init__(self) -> None:
        self.facts: list[dict[str, Any]] = []
        self._rows: list[tuple[int, int, int, int, int]] = []
        self._token_ids: list[int] = []
        self._logprobs: list[float] = []
        self._mask: list[int] = []
        self._content: list[int] = []
        self._says_content = False
        self._late: dict[str, list[float | None]] = {}

    def add(self, nodes: list[dict[str, Any]], agent: int = 0) -> int:
        """Take the nodes of one trace, which lose their arrays; returns the index of the first. Raises Rejected."""
        base = len(self.facts)
        for index, node in enumerate(nodes):
            late = {name: node.pop(name) for name in LATE if name in node}
            tokens, mask = node.pop("token_ids", None) or (), node.pop("mask", None) or ()
            logprobs, content = node.pop("logprobs", None) or (), node.pop("is_content", None) or ()
            if len(mask) != len(tokens) or (content and len(content) != len(tokens)):
                raise Rejected(
                    RejectReason.LENGTHS,
                    f"node {index}: {len(tokens)} token ids, mask of {len(mask)}, is_content of {len(content)}",
                )
            for name, values in late.items():
                self._add_late(name, values, mask)
            parent = _parent(node.pop("parent", None), index)
            if parent != NO_PARENT:
                parent += base
            self._rows.append((parent, len(tokens), len(logprobs), 0, agent))
            self._token_ids += tokens
            self._mask += mask
            self._logprobs += logprobs
            self._content += content or [UNSAID] * len(tokens)
            self._says_content = self._says_content or bool(content)
            self.facts.append(node)
        if base:
            _shift_links(self.facts[base:], base)
        return base

    @property
    def late(self) -> dict[str, list[float | None]]:
        """Late facts by name, one entry per response token; None where a node has none."""
        whole = len(self._logprobs)
        return {name: values + [None] * (whole - len(values)) for name, values in self._late.items()}

    def trajectory(self, record: dict[str, Any], version: int | None, *, rounds: bool = False) -> Trajectory:
        """Columns and record; each node with sampled tokens gets one segment of policy (0, `version`), if known.

        `rounds`: the producer is one that rounds log-probs; that it did is seen in them. Raises Rejected.
        """
        rows = np.array(self._rows, np.int32).reshape(-1, NODE_COLUMNS)
        segments = np.empty((0, 3), np.int32)
        if version is not None:
            rows[:, SEGMENTS] = rows[:, SAMPLED] > 0
            segments = np.zeros((int(rows[:, SEGMENTS].sum()), 3), np.int32)
            segments[:, 1] = version
        logprobs = _packed("d", self._logprobs)
        if rounds and len(logprobs) and np.array_equal(np.round(logprobs, DECIMALS), logprobs):
            record["logprob_precision"] = PRECISION
        record["nodes"] = self.facts
        return Trajectory(
            record_text=orjson.dumps(record),
            token_ids=_packed("i", self._token_ids),
            logprobs=logprobs.astype(np.float32),
            mask=_octets(self._mask),
            segments=segments,
            nodes=rows,
            columns={"is_content": Column(_octets(self._content), "token")} if self._says_content else None,
            record=record,
        )

    def _add_late(self, name: str, values: Any, mask: Any) -> None:
        """Keep the sampled tokens' values; before this node's own log-probs are added."""
        if isinstance(values, dict):
            for part, weights in cast("dict[str, Any]", values).items():
                self._add_late(f"{name}.{part}", weights, mask)
        elif values is not None:
            kept = self._late.setdefault(name, [])
            kept += [None] * (len(self._logprobs) - len(kept))
            kept += compress(values, mask) if len(values) == len(mask) else values


def _parent(said: Any, index: int) -> int:
    if said is None:
        return NO_PARENT
    if not isinstance(said, int) or not 0 <= said < index:
        raise Rejected(RejectReason.PARENT, f"node {index} has parent {said}")
    return said


def _shift_links(nodes: list[dict[str, Any]], base: int) -> None:
    """Declared edges name nodes of their own trace; in the forest these lie `base` further on."""
    for node in nodes:
        if links := node.get("semantic_parents"):
            node["semantic_parents"] = [{**link, "node": link["node"] + base} for link in links]


def _packed(code: str, values: list[Any]) -> npt.NDArray[Any]:
    """A list of numbers as an array of C `code`; half the time that numpy takes. Raises Rejected."""
    try:
        return np.frombuffer(struct.pack(f"={len(values)}{code}", *values), np.dtype(code))
    except struct.error as error:
        if None in values:
            raise Rejected(RejectReason.LOGPROBS, "a log-prob is null") from error
        raise Rejected(RejectReason.SHAPE, f"a number doesn't fit its column: {error}") from error


def _octets(values: list[int]) -> npt.NDArray[np.uint8]:
    return np.frombuffer(bytes(values), np.uint8)
