"""Values of the small events on `rollouts`: late annotations, takes and cancellations (design 2 and 3).

Guarantees: buffer, trainer and audit read them alike; whatever is wrong is one `Rejected`. Leaves out: headers
(`checks` looked at them) and what the events do to a group (`rolloutlog.buffer.membership`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, cast

from rolloutlog.contract.checks import MAX_GROUP, Rejected, read_json
from rolloutlog.contract.events import Event
from rolloutlog.contract.headers import Headers
from rolloutlog.contract.vocabulary import RejectReason


@dataclass(slots=True, frozen=True)
class Taken:
    """A worker holds a seed for `lease_ms` milliseconds; `renewal` counts from 0."""

    seed: str
    worker: str
    renewal: int
    lease_ms: int


@dataclass(slots=True, frozen=True)
class Cancelled:
    """Those members of a group get no more records."""

    members: tuple[int, ...]
    reason: str


def read_annotation(event: Event) -> dict[str, Any]:
    """Facts by key; a `reward` is a finite number or null (pending). Raises Rejected."""
    facts = read_json(event)
    reward = facts.get("reward")
    if reward is not None and not (_is_number(reward) and math.isfinite(reward)):
        raise Rejected(RejectReason.SHAPE, f"`reward` is a finite number or null, not {str(reward)[:40]!r}")
    return facts


def read_cancelled(event: Event) -> Cancelled:
    """Members within the group's size, and the reason. Raises Rejected."""
    body = read_json(event)
    size = event.headers.require(Headers.group_size)
    if not 0 < size <= MAX_GROUP:
        raise Rejected(RejectReason.MEMBER_RANGE, f"a group of {size}")
    members: Any = body.get("members")
    if not isinstance(members, list) or not all(_is_member(member, size) for member in cast("list[Any]", members)):
        raise Rejected(RejectReason.SHAPE, f"`members` is a list of members of a group of {size}")
    return Cancelled(tuple(sorted(set(cast("list[int]", members)))), str(body.get("reason", "")))


def read_taken(event: Event) -> Taken:
    """A take, from its headers alone. Raises HeaderError, which `read_headers` has raised before."""
    headers = event.headers
    return Taken(
        headers.require(Headers.seed),
        headers.require(Headers.worker),
        headers.renewal or 0,
        headers.require(Headers.lease),
    )


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_member(value: Any, size: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < size
