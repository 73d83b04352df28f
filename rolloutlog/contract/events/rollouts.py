"""Values of the small events: late annotations, takes, cancellations and seeds (design/log#events).

Guarantees: buffer, trainer and audit read them alike; whatever is wrong is one `Rejected`. Leaves out: headers
(`validation` looked at them) and what the events do to a group (`rolloutlog.buffer.group.group`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

from rolloutlog.contract.events.body import Resolved, body_of
from rolloutlog.contract.events.event import Event
from rolloutlog.contract.events.seeds import CANCELLED, Seed
from rolloutlog.contract.events.validation import check_digest, read_json
from rolloutlog.contract.handles import Handle
from rolloutlog.contract.ids import digest_of
from rolloutlog.contract.numbers import REWARD, is_reward
from rolloutlog.contract.record.slot import MAX_GROUP
from rolloutlog.contract.vocabulary import RejectReason, SeedKind
from rolloutlog.contract.wire.headers import MAX_TEXT, Headers
from rolloutlog.contract.wire.rejection import Rejected


@dataclass(slots=True, frozen=True)
class SeedTaken:
    """A worker's lease on a seed, for `lease_ms` milliseconds; `renewal` counts from 0."""

    seed: str
    worker: str
    renewal: int
    lease_ms: int


@dataclass(slots=True, frozen=True)
class GroupCancelled:
    """Those members of a group get no more records."""

    members: tuple[int, ...]
    reason: str


def read_annotation(event: Event) -> dict[str, Any]:
    """Facts by key; null is a `reward` that is pending. Raises Rejected."""
    facts = read_json(event)
    if not is_reward(reward := facts.get("reward")):
        raise Rejected(RejectReason.SHAPE, f"`reward` is {REWARD}, not {str(reward)[:40]!r}")
    return facts


def read_cancelled(event: Event) -> GroupCancelled:
    """Members within the group's size, and the reason. Raises Rejected."""
    body = read_json(event)
    size = event.headers.require(Headers.group_size)
    if not 0 < size <= MAX_GROUP:
        raise Rejected(RejectReason.MEMBER_RANGE, f"a group of {size}")
    members: Any = body.get("members")
    found = cast("list[Any]", members) if isinstance(members, list) else []
    if not found or not all(_is_member(member, size) for member in found):
        raise Rejected(RejectReason.SHAPE, f"`members` lists one or more members of a group of {size}")
    reason: Any = body.get("reason")
    return GroupCancelled(tuple(sorted(set(found))), reason if isinstance(reason, str) else "")


def read_taken(event: Event) -> SeedTaken:
    """A take, from its headers alone. Raises HeaderError, which `read_headers` has raised before."""
    headers = event.headers
    return SeedTaken(
        headers.require(Headers.seed),
        headers.require(Headers.worker),
        headers.renewal or 0,
        headers.require(Headers.lease),
    )


def _is_member(value: Any, size: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < size


def read_seed(event: Event, body: Resolved | None = None) -> Seed:
    """A sound seed, from its body; None: the one that the event carries. Raises Rejected."""
    raw = body_of(event, body).value
    check_digest(event.headers, digest_of(raw))
    try:
        seed = Seed.decode(raw)
    except Rejected:
        raise
    except ValueError as error:
        raise Rejected(RejectReason.SHAPE, str(error)) from error
    if seed.group != event.headers.group:
        raise Rejected(
            RejectReason.INCONSISTENT, f"the value is of group {seed.group}, its key of {event.headers.group}"
        )
    check_seed(seed)
    return seed


def check_seed(seed: Seed) -> None:
    """What its fields say together. Raises Rejected."""
    if (said := _bad_ask(seed)) is not None:
        raise Rejected(RejectReason.SHAPE, said)


def _bad_ask(seed: Seed) -> str | None:
    if seed.group_size > MAX_GROUP or (seed.group_train or 1) > seed.group_size:
        return f"{seed.group_train} members needed of {seed.group_size}"
    if seed.source is not None and not _is_handle(seed.source.handle):
        return f"source handle {seed.source.handle[:40]!r} isn't partition/offset/size"
    if any(ask.member >= seed.group_size for ask in seed.asks):
        return f"it asks for a member outside its group of {seed.group_size}"
    again = seed.kind in (SeedKind.RESUME, SeedKind.REROLL)
    if again != bool(seed.asks) or (again and seed.origin_seed is None):
        return f"a {seed.kind} seed " + ("names its origin and its members" if again else "asks for a whole group")
    return None


def _is_handle(text: str) -> bool:
    try:
        Handle.parse(text)
    except ValueError:
        return False
    return True


def read_seed_cancelled(event: Event) -> str:
    """The id of a cancelled seed. Raises Rejected."""
    seed: Any = read_json(event).get("seed")
    if not isinstance(seed, str) or not 0 < len(seed) <= MAX_TEXT - len(CANCELLED):
        raise Rejected(RejectReason.SHAPE, "`seed` is the id of the cancelled seed")
    return seed
