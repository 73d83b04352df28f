"""Values as plain JSON, so that a producer can be written by hand in any language (design/log#values).

Guarantees: what `encode_json` writes, `decode_json` reads back, to the bit; numbers that don't fit their column are
refused, never wrapped, and so is a true or a text in a number's place. Leaves out: speed, for which `value` is there.
"""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np
import orjson
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from rolloutlog.contract.record.trajectory import NODE_COLUMNS, Column, Trajectory
from rolloutlog.contract.vocabulary import RejectReason
from rolloutlog.contract.wire.arrays import DTYPES, Array, exact, rounded
from rolloutlog.contract.wire.json_text import parse, write
from rolloutlog.contract.wire.rejection import BadValue, Rejected, problem_of

_Int = Annotated[int, Field(strict=True, ge=-(2**31), lt=2**31)]
_Byte = Annotated[int, Field(strict=True, ge=0, lt=2**8)]
_Float = Annotated[float, Field(strict=True)]
_BY_TEXT = {dtype.str: dtype for dtype in DTYPES.values()}


class _Column(BaseModel):
    """An optional column: `dtype` as numpy writes it, such as `<f4`; `data` in row-major order."""

    model_config = ConfigDict(extra="forbid")

    dtype: str
    shape: list[int]
    data: list[Any]
    alignment: str = "opaque"

    def column(self, name: str) -> Column:
        """As an array. Raises ValueError, InvalidRecord among them."""
        if self.dtype not in _BY_TEXT:
            raise ValueError(f"dtype {self.dtype[:20]!r} is none of {', '.join(_BY_TEXT)}")
        return Column(exact(name, self.data, _BY_TEXT[self.dtype]).reshape(self.shape), self.alignment)


class _Value(BaseModel):
    """The value: arrays as lists, under the names that they have as columns."""

    model_config = ConfigDict(extra="forbid")

    record: dict[str, Any]
    token_ids: list[_Int]
    logprobs: list[_Float]
    mask: list[_Byte]
    segments: list[tuple[_Int, _Int, _Int]]
    nodes: list[tuple[_Int, _Int, _Int, _Int, _Int]]
    columns: dict[str, _Column] = Field(default_factory=dict[str, _Column])

    def trajectory(self) -> Trajectory:
        """As columns. Raises ValueError, TypeError or OverflowError."""
        if taken := self.columns.keys() & _Value.model_fields.keys():
            raise ValueError(f"an optional column can't be called {', '.join(sorted(taken))}")
        return Trajectory(
            record_text=write(self.record),
            token_ids=np.array(self.token_ids, np.int32),
            logprobs=rounded(self.logprobs),
            mask=np.array(self.mask, np.uint8),
            segments=np.array(self.segments, np.int32).reshape(-1, 3),
            nodes=np.array(self.nodes, np.int32).reshape(-1, NODE_COLUMNS),
            columns={name: column.column(name) for name, column in self.columns.items()},
        )


def decode_json(value: bytes) -> Trajectory:
    """A trajectory from JSON. Raises BadValue."""
    try:
        return _Value.model_validate(parse(value)).trajectory()
    except Rejected as rejected:
        raise BadValue(rejected.reason, rejected.detail) from rejected
    except ValidationError as error:
        raise BadValue(RejectReason.SHAPE, problem_of(error)) from error
    except (ValueError, OverflowError, TypeError) as error:
        raise BadValue(RejectReason.SHAPE, f"a column can't be made: {error}") from error


def encode_json(trajectory: Trajectory) -> bytes:
    """The value as JSON. Raises ValueError where a float has no JSON form."""
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
        body["columns"] = {name: _written(column) for name, column in trajectory.columns.items()}
    return orjson.dumps(body, default=_as_list, option=orjson.OPT_SERIALIZE_NUMPY)


def _written(column: Column) -> dict[str, Any]:
    array = column.array
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise ValueError("JSON has no form for a number of a column that isn't finite")
    return {
        "dtype": array.dtype.str,
        "shape": array.shape,
        "data": array.ravel(),
        "alignment": column.alignment,
    }


def _as_list(array: Array) -> list[Any]:
    """An array that orjson doesn't write itself: strided, of another byte order, or of a float type that it lacks."""
    return array.tolist()
