"""Values of completed records that are surely what their headers say, many at once (design/trainer#columns).

Guarantees: what is found sound is what `validation.read_rollout` reads, held by
`test_a_value_that_is_found_sound_is_one_that_the_validator_reads`; it raises for no bytes. Columns of all are looked at
in one pass. Leaves out: what isn't surely sound, or has another layout, and why.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from rolloutlog.contract.events.event import Event
from rolloutlog.contract.ids import digest_of
from rolloutlog.contract.record import value
from rolloutlog.contract.record.graph import leaf_count
from rolloutlog.contract.record.slot import Slot
from rolloutlog.contract.record.sound_together import look_together, policy_at
from rolloutlog.contract.record.soundness import check_record
from rolloutlog.contract.record.trajectory import Trajectory
from rolloutlog.contract.vocabulary import EventType, Grain, Status
from rolloutlog.contract.wire.headers import Headers
from rolloutlog.contract.wire.rejection import Rejected

_TYPE, _ROLLOUT, _STATUS = Headers.type.name, Headers.rollout.name, Headers.status.name
_STOP, _GRAIN = Headers.stop_condition.name, Headers.grain.name
_TURNS, _BRANCHES = Headers.turns.name, Headers.branches.name
_IS_COMPLETED, _COMPLETED = EventType.ROLLOUT_COMPLETED.encode(), Status.COMPLETED.encode()


def sound_values(events: Sequence[Event]) -> list[Trajectory | None]:
    """Of each event the trajectory, if its value is surely what its headers say; None: look at it by itself. What a
    reader has found sound isn't looked at again."""
    read = [_decoded(event) for event in events]
    unknown = [(event, one) for event, one in zip(events, read, strict=True) if one is not None and not event.is_sound]
    found = iter(_sure(unknown))
    return [
        one if one is not None and (event.is_sound or next(found)) else None
        for event, one in zip(events, read, strict=True)
    ]


def _decoded(event: Event) -> Trajectory | None:
    """None for another type or content type, and for what can't be decoded."""
    try:
        if event.headers.raw.get(_TYPE) != _IS_COMPLETED or event.headers.content_type != value.SAFETENSORS:
            return None
        return None if event.value is None else value.decode(event.value)
    except Rejected:
        return None


def _sure(read: Sequence[tuple[Event, Trajectory]]) -> list[bool]:
    """True for those whose columns are sound, and that are what their headers say."""
    look = look_together([one for _, one in read])
    seen = zip(look.sound.tolist(), look.oldest.tolist(), look.newest.tolist(), look.line.tolist(), strict=True)
    return [
        is_sound and _is_as_said(event, one, oldest, newest, is_line)
        for (event, one), (is_sound, oldest, newest, is_line) in zip(read, seen, strict=True)
    ]


def _is_as_said(event: Event, one: Trajectory, oldest: int, newest: int, is_line: bool) -> bool:
    headers = event.headers
    try:
        if headers.oldest_policy != policy_at(oldest) or headers.newest_policy != policy_at(newest):
            return False
        if len(one.token_ids) != headers.tokens or digest_of(cast("bytes", event.value)) != headers.digest:
            return False
        check_record(one, one.nodes.tolist())
        return headers.reward is not None and one.reward == headers.reward and _agrees(headers, one, is_line)
    except Rejected:
        return False


def _agrees(headers: Headers, one: Trajectory, is_line: bool) -> bool:
    """True where each header says exactly what the value says, or nothing
    (`rolloutlog.contract.record.provenance`)."""
    record, raw = one.record, headers.raw
    turns = sum(1 for node in cast("list[dict[str, Any]]", record["nodes"]) if node.get("sampled"))
    stop, rollout = record.get("stop_condition"), raw.get(_ROLLOUT)
    branches = 1 if is_line else leaf_count(one.parents)
    return (
        (rollout is None or rollout == Slot.of(headers).rollout.encode())
        and raw.get(_STATUS, _COMPLETED) == _COMPLETED
        and _says(raw.get(_STOP), stop)
        and _says(raw.get(_GRAIN), record.get("grain", Grain.TOKEN))
        and _says(raw.get(_TURNS), turns)
        and _says(raw.get(_BRANCHES), branches)
    )


def _says(said: bytes | None, value: object) -> bool:
    """True where a header says that value, or nothing; no value can be said that is empty."""
    return said is None or (value is not None and said == str(value).encode() != b"")
