"""What a producer writes, looked at with the readers' own checks before it is written (design/record#validation).

Guarantees: what `checked_rollout` and `checked_event` return no reader will reject for what it says; what they refuse
raises InvalidRecord with the reason of the dead letter that it would have become, and no sequence number is taken. The
value is encoded once. Leaves out: size (`rolloutlog.kafka.write.writing`) and policies that were never
published, which the trainer alone can know.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rolloutlog.contract.events.event import Event, Outgoing, rollout_event
from rolloutlog.contract.events.validation import read_headers
from rolloutlog.contract.record import value
from rolloutlog.contract.record.rollout import Rollout
from rolloutlog.contract.record.slot import check_slot
from rolloutlog.contract.record.soundness import check_trajectory
from rolloutlog.contract.wire.headers import Headers
from rolloutlog.contract.wire.refusal import refusing


def checked_rollout(rollout: Rollout, *, source: str, now: int) -> Outgoing:
    """The event of a rollout, `now` in milliseconds since 1970. Raises InvalidRecord."""
    with refusing():  # what an environment returned may be anything, and do anything
        check_slot(rollout.slot)
        body = value.encode(rollout.trajectory)
        check_trajectory(rollout.trajectory)
        return rollout_event(rollout, source=source, now=now, body=body)


def checked_event(make: Callable[[], Outgoing], read: Callable[[Event], Any]) -> Outgoing:
    """A small event from `make`, once `read`, the readers' own function, has taken it. Raises InvalidRecord."""
    with refusing():
        record = make()
        event = Event(
            topic=record.topic,
            partition=0,
            offset=0,
            timestamp=record.timestamp or 0,
            key=record.key,
            headers=Headers(record.headers),
            value=record.value,
        )
        read_headers(event)
        read(event)
        return record
