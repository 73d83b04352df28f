"""What a reader says of a record: its reason, or nothing.

Guarantees: anything but a rejection goes through, so a crash stays a crash. Leaves out: services.
"""

from __future__ import annotations

from collections.abc import Callable

from rolloutlog.contract.events.body import Body
from rolloutlog.contract.events.event import Event
from rolloutlog.contract.events.validation import read_headers, read_rollout
from rolloutlog.contract.vocabulary import RejectReason
from rolloutlog.contract.wire.rejection import Rejected


def reason_of(read: Callable[[], object]) -> RejectReason | None:
    """Why `read` rejects; None where it doesn't."""
    try:
        read()
    except Rejected as rejected:
        return rejected.reason
    return None


def read_alone(event: Event, partitions: int | None = 6) -> None:
    """What headers and value say by themselves; a claimed body isn't looked at. Raises Rejected."""
    read_headers(event, partitions)
    if not Body.of(event).is_claim:
        read_rollout(event)
