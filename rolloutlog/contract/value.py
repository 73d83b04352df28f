"""Values of rollout records: trajectory to bytes and back, as safetensors or as plain JSON (design 3).

Guarantees: `decode(*encode(t)) == t` for every trajectory; log-probs keep full precision in safetensors; arrays of the
binary form are read-only views of the value. Leaves out: soundness of what was read (`checks`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import orjson
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from rolloutlog.contract import arrays, layout
from rolloutlog.contract.arrays import Array, BadBuffer
from rolloutlog.contract.rejection import BadValue, problem_of
from rolloutlog.contract.trajectory import NODE_COLUMNS, Column, Trajectory
from rolloutlog.contract.vocabulary import RejectReason

SAFETENSORS = "application/vnd.safetensors"
JSON = "application/json"

ALIGNMENTS = ("token", "sampled", "opaque")
_I32, _F32, _U8 = np.dtype("<i4"), np.dtype("<f4"), np.dtype("u1")


class Spec(NamedTuple):
    """One required column: its dtype, the width of its second axis (0: it has one axis), and what it holds."""

    dtype: np.dtype[Any]
    width: int
    meaning: str


COLUMNS: dict[str, Spec] = {
    "token_ids": Spec(_I32, 0, "tokens of all nodes, node after node"),
    "logprobs": Spec(_F32, 0, "one log-prob per sampled token, finite, at full precision"),
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
        head, _ = layout.write_head(*(len(columns[name]) for name in layout.EXTENTS))
        return b"".join([head, *(column.tobytes() for column in columns.values())])
    except (KeyError, AttributeError) as error:
        raise BadValue(RejectReason.SHAPE, f"a column isn't an array of a dtype that travels: {error}") from error


def _encode_any(columns: dict[str, Array], optional: Mapping[str, Column]) -> bytes:
    if taken := optional.keys() & columns.keys():
        raise BadValue(RejectReason.SHAPE, f"an optional column can't be called {', '.join(sorted(taken))}")
    named = {name: column.array for name, column in optional.items()}
    return arrays.encode(columns | named, {name: column.alignment for name, column in optional.items()})


def decode(value: bytes, content_type: str = SAFETENSORS) -> Trajectory:
    """A trajectory, its arrays views of `value`. Raises BadValue."""
    if content_type == SAFETENSORS:
        return _from_buffer(value)
    if content_type.partition(";")[0].strip() == JSON:
        return _from_json(value)
    raise BadValue(RejectReason.CONTENT_TYPE, f"content-type {content_type!r} is neither {SAFETENSORS} nor {JSON}")


def _from_buffer(value: bytes) -> Trajectory:
    if (found := layout.find(value)) is None:
        return _from_any_buffer(value)
    tokens, sampled, segments, nodes, start, (a, b, c, d, e, _) = found
    return Trajectory(
        record_text=value[start + e :],
        token_ids=np.ndarray(tokens, _I32, value, start),
        logprobs=np.ndarray(sampled, _F32, value, start + a),
        segments=np.ndarray((segments, 3), _I32, value, start + b),
        nodes=np.ndarray((nodes, NODE_COLUMNS), _I32, value, start + c),
        mask=np.ndarray(tokens, _U8, value, start + d),
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


class _JsonColumn(BaseModel):
    model_config = ConfigDict(extra="forbid")
    dtype: str
    shape: list[int]
    data: list[Any]
    alignment: str = "opaque"


class _JsonValue(BaseModel):
    """The form that is written by hand: arrays as lists, names as in the binary form."""

    model_config = ConfigDict(extra="forbid")
    record: dict[str, Any]
    token_ids: list[int]
    logprobs: list[float]
    mask: list[int]
    segments: list[tuple[int, int, int]]
    nodes: list[tuple[int, int, int, int, int]]
    columns: dict[str, _JsonColumn] = Field(default_factory=dict)


def encode_json(trajectory: Trajectory) -> bytes:
    """The same value as plain JSON. Raises ValueError where a float has no JSON form."""
    if not np.isfinite(trajectory.logprobs).all():
        raise ValueError("JSON has no form for a log-prob that isn't finite")
    body: dict[str, Any] = {
        "record": orjson.Fragment(trajectory.record_text),
        "token_ids": trajectory.token_ids,
        "logprobs": trajectory.logprobs.astype(np.float64),
        "mask": trajectory.mask,
        "segments": trajectory.segments,
        "nodes": trajectory.nodes,
    }
    if trajectory.columns:
        body["columns"] = {
            name: {
                "dtype": c.array.dtype.str,
                "shape": c.array.shape,
                "data": c.array.ravel(),
                "alignment": c.alignment,
            }
            for name, c in trajectory.columns.items()
        }
    return orjson.dumps(body, default=_as_list, option=orjson.OPT_SERIALIZE_NUMPY)


def _as_list(array: Array) -> list[Any]:
    """A strided or foreign-endian array, which orjson doesn't write itself."""
    return array.tolist()


def _from_json(value: bytes) -> Trajectory:
    try:
        body = _JsonValue.model_validate(orjson.loads(value))
    except orjson.JSONDecodeError as error:
        raise BadValue(RejectReason.NOT_JSON, f"not JSON: {error}") from error
    except ValidationError as error:
        raise BadValue(RejectReason.SHAPE, problem_of(error)) from error
    try:
        return Trajectory(
            record_text=orjson.dumps(body.record),
            token_ids=np.array(body.token_ids, np.int32),
            logprobs=np.array(body.logprobs, np.float32),
            mask=np.array(body.mask, np.uint8),
            segments=np.array(body.segments, np.int32).reshape(-1, 3),
            nodes=np.array(body.nodes, np.int32).reshape(-1, NODE_COLUMNS),
            columns={name: _column(column) for name, column in body.columns.items()},
        )
    except (ValueError, OverflowError, TypeError) as error:
        raise BadValue(RejectReason.SHAPE, f"a number doesn't fit its column: {error}") from error


def _column(column: _JsonColumn) -> Column:
    array = np.array(column.data, np.dtype(column.dtype)).reshape(column.shape)
    if array.dtype.kind not in "fiub":
        raise ValueError(f"dtype {column.dtype}")
    return Column(array, column.alignment)
