"""The stamp that an export of ours puts on a line: what the line's layout has no words for.

Guarantees: an import of the line gets back slot, status, notes and, where the layout loses some of it, the value to the
byte. The stamp knows the line that it was put on, so a line that somebody edited since is read as it stands, in the
place that the stamp says. Leaves out what means nothing on another log: attempts, origin seeds, handles.
"""

from __future__ import annotations

import base64
import binascii
from typing import Any, cast

import orjson
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from rolloutlog.contract.ids import digest_of
from rolloutlog.contract.record import value
from rolloutlog.contract.record.slot import Slot, check_slot
from rolloutlog.contract.record.trajectory import Trajectory
from rolloutlog.contract.vocabulary import RejectReason, Status
from rolloutlog.contract.wire.headers import Headers, check_names
from rolloutlog.contract.wire.rejection import Rejected, problem_of

KEY = "rolloutlog"
HOLDER = "info"
"""A line has the stamp under `KEY`, or within its `info` where the layout allows no other keys."""
_PREFIX = "ce_"

Json = dict[str, Any]


class Stamp(BaseModel):
    """`slot` has the headers of the rollout's slot, `step` the step in whose window it came, `notes` what was said of
    it later; `value` is its value in base64; `line` the digest of the line without the stamp."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    slot: dict[str, str]
    status: Status
    step: int | None = Field(default=None, ge=0)
    notes: Json = Field(default_factory=dict[str, Any])
    value: str | None = None
    line: str = ""

    @property
    def place(self) -> Slot:
        """The slot. Raises Rejected."""
        return slot_of(self.slot)

    @property
    def trajectory(self) -> Trajectory | None:
        """The value, where the stamp has it. Raises Rejected."""
        if self.value is None:
            return None
        try:
            return value.decode(base64.b64decode(self.value, validate=True))
        except binascii.Error as error:
            raise Rejected(RejectReason.SHAPE, f"{KEY}.value isn't base64: {error}") from error


def slot_text(slot: Slot) -> dict[str, str]:
    """The headers of a slot, as another log may have them; a rollout that was sampled here gets its id as its own."""
    kept = slot._replace(
        attempt=1,
        trace=slot.trace or slot.rollout,
        source_file=None,
        origin_seed=None,
        origin_offset=None,
        source_handle=None,
    )
    return {name.removeprefix(_PREFIX): raw.decode() for name, raw in kept.headers()}


def slot_of(text: dict[str, str]) -> Slot:
    """The slot that `slot_text` wrote. Raises Rejected."""
    headers = Headers((_PREFIX + name, said.encode()) for name, said in text.items())
    check_names(headers)
    slot = Slot.of(headers)
    check_slot(slot)
    return slot


def stamped(text: bytes, stamp: Stamp, *, within: bool) -> bytes:
    """The line with a stamp; `within` puts it into the line's `info`."""
    line: Json = orjson.loads(text)
    holder: Json = line.setdefault(HOLDER, {}) if within else line
    holder.pop(KEY, None)  # somebody's own fact of that name, which the stamped value has
    sealed = stamp.model_copy(update={"line": _seal(line)})
    holder[KEY] = sealed.model_dump(mode="json", exclude_none=True, exclude_defaults=True)
    return orjson.dumps(line)


def take_stamp(line: Json) -> tuple[Stamp, bool] | None:
    """Take the stamp off a line, and whether it is the line that it was put on; None without one. Raises Rejected."""
    info: Any = line.get(HOLDER)
    within = cast("Json", info) if isinstance(info, dict) else {}
    holder = line if KEY in line else within
    if KEY not in holder:
        return None
    try:
        stamp = Stamp.model_validate(holder.pop(KEY))
    except ValidationError as error:
        raise Rejected(RejectReason.SHAPE, f"{KEY}: {problem_of(error)}") from error
    return stamp, stamp.line == _seal(line)


def _seal(line: Json) -> str:
    """Digest of what a line says, however it is laid out."""
    return digest_of(orjson.dumps(line, option=orjson.OPT_SORT_KEYS))
