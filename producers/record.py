"""What a producer writes, looked at with the readers' own checks before it is written (design 4 and 5).

Guarantees: what `record_of` and `note_of` return no reader will reject for what it says; what they refuse raises
InvalidRecord with the reason of the dead letter that it would have become, and no sequence number is taken. The value
is encoded once and hashed once. Leaves out: size (`rolloutlog.kafka.writing`) and policies that were never published,
which the trainer alone can know.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from rolloutlog.contract import value
from rolloutlog.contract.checks import check_slot, read_headers
from rolloutlog.contract.errors import InvalidRecord
from rolloutlog.contract.events import Event, Outgoing, rollout_event
from rolloutlog.contract.headers import Headers
from rolloutlog.contract.rejection import Rejected
from rolloutlog.contract.rollout import Rollout
from rolloutlog.contract.soundness import check_trajectory
from rolloutlog.contract.vocabulary import RejectReason
from rolloutlog.producers.endings import text_of, type_name


def record_of(rollout: Rollout, *, source: str, now: int) -> Outgoing:
    """The event of a rollout, `now` in milliseconds since 1970. Raises InvalidRecord."""
    try:
        check_slot(rollout.slot)
        body = value.encode(rollout.trajectory)
        check_trajectory(rollout.trajectory)
        return rollout_event(rollout, source=source, now=now, body=body)
    except Exception as error:  # what an environment returned may be anything, and do anything
        raise refusal(error) from error


def note_of(make: Callable[[], Outgoing], read: Callable[[Event], Any]) -> Outgoing:
    """A small event from `make`, once `read`, the readers' own function, has taken it. Raises InvalidRecord."""
    try:
        record = make()
        event = Event(record.topic, 0, 0, record.timestamp or 0, record.key, Headers(record.headers), record.value)
        read_headers(event)
        read(event)
    except (ValueError, TypeError, AttributeError, KeyError) as error:
        raise refusal(error) from error
    return record


def finite(facts: Mapping[str, Any]) -> Mapping[str, Any]:
    """The same facts, if JSON won't make any of them null. Raises InvalidRecord(shape)."""
    bad = [name for name, fact in facts.items() if isinstance(fact, float) and not math.isfinite(fact)]
    if bad:
        raise InvalidRecord(RejectReason.SHAPE, f"{', '.join(bad)} isn't finite, which JSON can't say")
    return facts


def refusal(error: Exception) -> InvalidRecord:
    """Our error for what a check said, or for what couldn't even be written down."""
    if isinstance(error, Rejected):
        return InvalidRecord(error.reason, error.detail)
    return InvalidRecord(RejectReason.SHAPE, f"{type_name(error)}: {text_of(error)}")
