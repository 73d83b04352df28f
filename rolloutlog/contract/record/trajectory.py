"""What one attempt sampled: a message graph whose tokens lie in columns, and the record of everything else
(design/record#graph).

Guarantees: columns are whole numpy arrays of fixed dtypes; *response token i* is the i-th sampled token over the nodes
in creation order, each node once; the record's text is parsed only when asked for. Leaves out: the slot it fills
(`slot`), bytes (`value`) and soundness (`soundness`): a trajectory read from foreign bytes may be malformed until it
was checked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, cast

import numpy as np
import numpy.typing as npt
import orjson

from rolloutlog.contract.errors import InvalidRecord
from rolloutlog.contract.policies import Policy
from rolloutlog.contract.record import graph
from rolloutlog.contract.record.node import Node
from rolloutlog.contract.record.segments import Runs, runs_of
from rolloutlog.contract.vocabulary import RejectReason
from rolloutlog.contract.wire.arrays import Array, exact, joined
from rolloutlog.contract.wire.json_text import parse, write
from rolloutlog.contract.wire.refusal import refusing

NODE_COLUMNS = 5
PARENT, TOKENS, SAMPLED, SEGMENTS, AGENT = range(NODE_COLUMNS)
"""Columns of `nodes`: parent or -1, tokens, sampled tokens, segments, index into the record's `agents`."""

I32 = npt.NDArray[np.int32]


class Column(NamedTuple):
    """An optional named column and the axis it is parallel to: token, sampled or opaque."""

    array: Array
    alignment: str


class Trajectory:
    """One attempt: token_ids i32 [T], logprobs f32 [S], mask u8 [T], segments i32 [G, 3], nodes i32 [N, 5]."""

    __slots__ = (
        "_messages",
        "_parents",
        "_record",
        "_sampled",
        "columns",
        "logprobs",
        "mask",
        "memo",
        "nodes",
        "record_text",
        "segments",
        "token_ids",
    )

    def __init__(
        self,
        *,
        record_text: bytes,
        token_ids: I32,
        logprobs: npt.NDArray[np.float32],
        mask: npt.NDArray[np.uint8],
        segments: I32,
        nodes: I32,
        columns: Mapping[str, Column] | None = None,
        record: dict[str, Any] | None = None,
    ) -> None:
        """`record`: what `record_text` says, where the caller has it parsed already."""
        self.record_text = record_text
        self.token_ids, self.logprobs, self.mask = token_ids, logprobs, mask
        self.segments, self.nodes = segments, nodes
        self.columns: dict[str, Column] = {} if columns is None else dict(columns)
        self._record = record
        self._parents: list[int] | None = None
        self._sampled: list[bool] | None = None
        self._messages: list[dict[str, Any] | None] | None = None
        self.memo: object = None
        """What somebody made of all of it, so that it is made once per record; it mustn't lead back here."""

    @property
    def record(self) -> dict[str, Any]:
        """Everything that isn't an array; parsed at the first access. Raises Rejected if it isn't JSON that is kept."""
        if self._record is None:
            self._record = cast("dict[str, Any]", parse(self.record_text))
        return self._record

    def may_say(self, key: str) -> bool:
        """False where surely no object of the record has that key; the text isn't parsed for it."""
        return key.encode() in self.record_text or b"\\u" in self.record_text

    @classmethod
    def build(
        cls, nodes: Sequence[Node], record: Mapping[str, Any] | None = None, columns: Mapping[str, Column] | None = None
    ) -> Trajectory:
        """Columns from nodes; `record` holds what else is known (reward, task, errors, agents, ...).

        Raises InvalidRecord(shape) where a column can't be an array of its dtype, or the record can't be JSON: also for
        a number that isn't finite, which JSON would make null (a reward: pending); soundness is for `validation`.
        """
        with refusing():
            return cls(
                record_text=_text_of(nodes, mapping("record", record)),
                token_ids=joined("token_ids", [n.token_ids for n in nodes], np.int32),
                logprobs=joined("logprobs", [n.logprobs for n in nodes], np.float32),
                mask=joined("mask", [n.mask for n in nodes], np.uint8),
                segments=exact("segments", [s for n in nodes for s in n.segments], np.int32, 3),
                nodes=exact("nodes", _table_of(nodes), np.int32, NODE_COLUMNS),
                columns=columns,
            )

    @property
    def parents(self) -> list[int]:
        """Parent of each node, -1 for roots; like the next two made once, and read only."""
        if self._parents is None:
            self._parents = cast("list[int]", self.nodes[:, PARENT].tolist())
        return self._parents

    def as_nodes(self) -> list[Node]:
        """Its nodes, from which `build` makes the same columns: how a resumed attempt carries its prefix."""
        made: list[Node] = []
        token = sampled = segment = 0
        for (parent, tokens, kept, segments, agent), said in zip(
            self.nodes.tolist(), self.record["nodes"], strict=True
        ):
            facts = dict(said)
            made.append(
                Node(
                    message=facts.pop("message", None),
                    parent=parent,
                    sampled=bool(facts.pop("sampled", False)),
                    token_ids=self.token_ids[token : token + tokens],
                    mask=self.mask[token : token + tokens],
                    logprobs=self.logprobs[sampled : sampled + kept],
                    segments=[(t, v, o) for t, v, o in self.segments[segment : segment + segments].tolist()],
                    agent=agent,
                    facts=facts,
                )
            )
            token, sampled, segment = token + tokens, sampled + kept, segment + segments
        return made

    @property
    def branches(self) -> list[list[int]]:
        """Root-to-leaf paths, in leaf order."""
        return graph.branches(self.parents)

    @property
    def sampled_nodes(self) -> list[bool]:
        """Which nodes a model call produced."""
        if self._sampled is None:
            self._sampled = [bool(node.get("sampled")) for node in self.record["nodes"]]
        return self._sampled

    @property
    def messages(self) -> list[dict[str, Any] | None]:
        """Message of each node, None for nodes without one."""
        if self._messages is None:
            self._messages = [node.get("message") for node in self.record["nodes"]]
        return self._messages

    @property
    def response_tokens(self) -> int:
        """Length of the response axis: sampled tokens over all nodes."""
        return len(self.logprobs)

    @property
    def loss_mask(self) -> npt.NDArray[np.bool_] | None:
        """The producer's own loss mask on the response axis, if it sent one."""
        column = self.columns.get("loss_mask")
        if column is None:
            return None
        kept = column.array.astype(np.bool_)
        return kept[self.mask.astype(np.bool_)] if column.alignment == "token" else kept

    @property
    def runs(self) -> Runs:
        """Which policy sampled which response token."""
        return runs_of(self.segments, self.nodes[:, SEGMENTS], self.nodes[:, SAMPLED])

    @property
    def policy_span(self) -> tuple[Policy, Policy] | None:
        """Oldest and newest policy of a sampled token; None without segments."""
        if not len(self.segments):
            return None
        rows = cast("list[list[int]]", self.segments.tolist())
        return Policy(*min(rows)[:2]), Policy(*max(rows)[:2])

    @property
    def reward(self) -> float | None:
        """Reward of the rollout; None while it is pending."""
        return self.record.get("reward")

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Trajectory):
            return NotImplemented
        mine, theirs = self._arrays(), other._arrays()
        return (
            self.record == other.record
            and mine.keys() == theirs.keys()
            and all(np.array_equal(mine[k], theirs[k], equal_nan=mine[k].dtype.kind == "f") for k in mine)
        )

    __hash__ = None  # type: ignore[assignment]

    def _arrays(self) -> dict[str, Array]:
        own = {"token_ids": self.token_ids, "logprobs": self.logprobs, "mask": self.mask, "segments": self.segments}
        return {**own, "nodes": self.nodes, **{name: column.array for name, column in self.columns.items()}}


def mapping(name: str, said: object) -> Mapping[str, Any]:
    """What a producer gave by name; nothing where it gave none. Raises InvalidRecord(shape)."""
    if said is None:
        return {}
    if not isinstance(said, Mapping):
        raise InvalidRecord(RejectReason.SHAPE, f"`{name}` is a mapping, not {type(said).__name__}")
    return cast("Mapping[str, Any]", said)


def _table_of(nodes: Sequence[Node]) -> list[tuple[int, int, int, int, int]]:
    return [(n.parent, len(n.token_ids), len(n.logprobs), len(n.segments), n.agent) for n in nodes]


def _text_of(nodes: Sequence[Node], record: Mapping[str, Any]) -> bytes:
    """The record as JSON. Raises Rejected(shape)."""
    facts = [{"message": n.message, "sampled": n.sampled, **mapping("facts", n.facts)} for n in nodes]
    return write({**record, "nodes": facts}, orjson.OPT_SERIALIZE_NUMPY)
