"""Values of rollout records: trajectory to bytes and back, as a safetensors buffer (design/log#values).

Guarantees: `decode(encode(t)) == t` for every trajectory, to the bit, and what was read is written as the same bytes;
decoded arrays are read-only views of the value. `decode` reads plain JSON as well. Leaves out: how JSON is written
(`plain_json`), and soundness of what was read (`soundness`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from rolloutlog.contract.record.plain_json import decode_json
from rolloutlog.contract.record.trajectory import NODE_COLUMNS, Column, Trajectory
from rolloutlog.contract.vocabulary import RejectReason
from rolloutlog.contract.wire import arrays, layout
from rolloutlog.contract.wire.arrays import Array, BadBuffer
from rolloutlog.contract.wire.rejection import BadValue

SAFETENSORS = "application/vnd.safetensors"
JSON = "application/json"

ALIGNMENTS = ("token", "sampled", "opaque")
_view = np.ndarray  # of (shape, dtype, buffer, offset): half the cost of `frombuffer` and `reshape`
_I32, _F32, _U8 = np.dtype("<i4"), np.dtype("<f4"), np.dtype("u1")


class Spec(NamedTuple):
    """One required column: its dtype, the width of its second axis (0: it has one axis), and what it holds."""

    dtype: np.dtype[Any]
    width: int
    meaning: str


COLUMNS: dict[str, Spec] = {
    "token_ids": Spec(_I32, 0, "tokens of all nodes, node after node; none below 0"),
    "logprobs": Spec(
        _F32, 0, "one log-prob per sampled token, finite and up to 0 (0.001 of rounding), at full precision"
    ),
    "segments": Spec(
        _I32, 3, "`[timeline, version, offset]`: from that sampled token of its node on, that policy sampled"
    ),
    "nodes": Spec(_I32, NODE_COLUMNS, "`[parent or -1, tokens, sampled tokens, segments, agent]`, a row per node"),
    "mask": Spec(_U8, 0, "parallel to `token_ids`: 1 where a policy sampled the token, else 0"),
    "record": Spec(_U8, 0, "the JSON text of everything that isn't an array, as UTF-8"),
}
"""The required columns, in the order in which they are written."""


def encode(trajectory: Trajectory) -> bytes:
    """A safetensors value. Raises BadValue(shape) for columns that `decode` would refuse."""
    columns: dict[str, Array] = {
        "token_ids": trajectory.token_ids,
        "logprobs": trajectory.logprobs,
        "segments": trajectory.segments,
        "nodes": trajectory.nodes,
        "mask": trajectory.mask,
        "record": np.frombuffer(trajectory.record_text, np.uint8),
    }
    try:
        _check_shapes(columns)
        if trajectory.columns or len(trajectory.mask) != len(trajectory.token_ids):
            return _encode_any(columns, trajectory.columns)
        head = layout.write_head(*(len(columns[name]) for name in layout.EXTENTS))
        return b"".join([head, *(column.tobytes() for column in columns.values())])
    except (KeyError, AttributeError) as error:
        raise BadValue(RejectReason.SHAPE, f"a column isn't an array of a dtype that travels: {error}") from error


def _encode_any(columns: dict[str, Array], optional: Mapping[str, Column]) -> bytes:
    if taken := optional.keys() & columns.keys():
        raise BadValue(RejectReason.SHAPE, f"an optional column can't be called {', '.join(sorted(taken))}")
    ordered = sorted(optional.items(), key=lambda item: -item[1].array.itemsize)  # as they will lie, and be read again
    named = {name: column.array for name, column in ordered}
    return arrays.encode(columns | named, {name: column.alignment for name, column in ordered})


def decode(value: bytes, content_type: str = SAFETENSORS) -> Trajectory:
    """A trajectory, its arrays views of `value`. Raises BadValue."""
    if content_type == SAFETENSORS:
        found = layout.find(value)
        return _from_any_buffer(value) if found is None else _from_buffer(value, found)
    if content_type.partition(";")[0].strip() == JSON:
        return decode_json(value)
    raise BadValue(RejectReason.CONTENT_TYPE, f"content-type {content_type!r} is neither {SAFETENSORS} nor {JSON}")


def _from_buffer(value: bytes, found: layout.Layout) -> Trajectory:
    tokens, sampled, segments, nodes, start, a, b, c, d, e = found
    return Trajectory(
        record_text=value[e:],
        token_ids=_view(tokens, _I32, value, start),
        logprobs=_view(sampled, _F32, value, a),
        segments=_view((segments, 3), _I32, value, b),
        nodes=_view((nodes, NODE_COLUMNS), _I32, value, c),
        mask=_view(tokens, _U8, value, d),
    )


def _from_any_buffer(value: bytes) -> Trajectory:
    try:
        columns, metadata = arrays.decode(value)
    except BadBuffer as error:
        raise BadValue(RejectReason.TRUNCATED, f"not a safetensors buffer: {error}") from error
    _check_shapes(columns)
    extra = {n: Column(c, metadata.get(n, "opaque")) for n, c in columns.items() if n not in COLUMNS}
    return Trajectory(
        record_text=columns["record"].tobytes(),
        token_ids=columns["token_ids"],
        logprobs=columns["logprobs"],
        mask=columns["mask"],
        segments=columns["segments"],
        nodes=columns["nodes"],
        columns=extra,
    )


def _check_shapes(columns: Mapping[str, Array]) -> None:
    for name, (dtype, width, _) in COLUMNS.items():
        column = columns.get(name)
        if column is None:
            raise BadValue(RejectReason.SHAPE, f"column {name} is missing")
        if column.dtype != dtype or column.ndim != (2 if width else 1) or (width and column.shape[1] != width):
            raise BadValue(RejectReason.SHAPE, f"column {name} is {column.dtype.str}{list(column.shape)}")
