"""A member's slot: which attempt of which member of which group a rollout is, and where the group comes from.

Guarantees: everything here comes from headers or goes to them; nothing is read from the value. What all members of a
group share is read and written once a group. Leaves out: what was sampled.
"""

from __future__ import annotations

from functools import lru_cache
from operator import attrgetter
from typing import Any, NamedTuple

from rolloutlog.contract.handles import Handle
from rolloutlog.contract.ids import attempt_id, rollout_id
from rolloutlog.contract.numbers import COUNTED
from rolloutlog.contract.vocabulary import RejectReason, RunKind
from rolloutlog.contract.wire.headers import FIELDS, REMEMBERED, Field, Headers
from rolloutlog.contract.wire.rejection import Rejected

MAX_GROUP = 4096
"""Members of a group at most: folds look at all of a group that changed, so one header must not say a million."""


class Slot(NamedTuple):
    """Group, member and attempt of a rollout, with the lineage of its group."""

    group: str
    group_size: int
    member: int
    attempt: int = 1
    trace: str | None = None
    """Its own id where it was recorded; None: it was sampled into this namespace."""
    group_train: int | None = None
    kind: RunKind = RunKind.TRAIN
    run: str | None = None
    env: str | None = None
    derivation: str | None = None
    origin_seed: str | None = None
    origin_offset: int | None = None
    seed_kind: str | None = None
    source_file: str | None = None
    """File that an import gathered its group from, where the source names none."""
    source_id: str | None = None
    """Id of the rollout that a derived one was made of."""
    source_handle: Handle | None = None
    depth: int | None = None
    dispatch_step: int | None = None
    filtered: bool | None = None

    @property
    def needed(self) -> int:
        """Members needed to train the group: `group_train`, or all of them."""
        return self.group_size if self.group_train is None else self.group_train

    @property
    def rollout(self) -> str:
        """Rollout id."""
        return rollout_id(self.group, self.member)

    @property
    def event_id(self) -> str:
        """Event id of this attempt's record."""
        return attempt_id(self.group, self.member, self.attempt)

    def retry(self, attempt: int) -> Slot:
        """The same slot at another attempt."""
        return self._replace(attempt=attempt)

    def of_member(self, member: int, attempt: int) -> Slot:
        """The slot of another member of the same group."""
        return self._replace(member=member, attempt=attempt)

    @classmethod
    def of(cls, headers: Headers) -> Slot:
        """Read a slot from headers; raises Rejected."""
        if isinstance(headers.memo, Slot):
            return headers.memo
        group, size, *shared = _shared_values(*map(headers.raw.get, _SHARED_NAMES))
        member, attempt = headers.require(Headers.member), headers.attempt
        headers.memo = slot = cls(group, size, member, 1 if attempt is None else attempt, headers.trace, *shared)
        return slot

    def headers(self) -> list[tuple[str, bytes]]:
        """Headers of this slot. Raises HeaderError where it would be read as another one."""
        own = {"member": self.member, "attempt": self.attempt, "trace": self.trace}
        return [*_shared_headers(_SHARED_OF(self)), *Headers.encode(own)]


def check_slot(slot: Slot) -> None:
    """Ranges of member, group and attempt. Raises Rejected."""
    if not 0 < slot.group_size <= MAX_GROUP or not 0 <= slot.member < slot.group_size:
        said = f"member {slot.member} of a group of {slot.group_size} (at most {MAX_GROUP})"
        raise Rejected(RejectReason.MEMBER_RANGE, said)
    if not 0 < slot.needed <= slot.group_size:
        raise Rejected(RejectReason.GROUP_SIZE, f"{slot.needed} members needed of {slot.group_size}")
    if not 0 < slot.attempt < COUNTED:
        raise Rejected(RejectReason.HEADER_MALFORMED, "attempts count from 1, and the next one can be said")


@lru_cache(REMEMBERED)
def _shared_headers(values: tuple[Any, ...]) -> list[tuple[str, bytes]]:
    """Headers of what all members of a group share; made once a group."""
    return Headers.encode(dict(zip(_SHARED, values, strict=True)))


@lru_cache(REMEMBERED)
def _shared_values(*raw: bytes | None) -> list[Any]:
    """What all members of a group share, as their headers say it; read once a group. Raises HeaderError."""
    said = Headers.of(dict(zip(_SHARED_NAMES, raw, strict=True)))
    for field in _REQUIRED:
        said.require(field)
    known = ((name, getattr(said, name)) for name in _SHARED)
    return [Slot._field_defaults.get(name) if value is None else value for name, value in known]


_OWN = ("member", "attempt", "trace")
_SHARED = tuple(name for name in Slot._fields if name not in _OWN)
"""A slot's fields are rows of the table of headers, by the same names."""
_SHARED_OF = attrgetter(*_SHARED)
_SHARED_NAMES = tuple(FIELDS[name].name for name in _SHARED)
_REQUIRED: tuple[Field[Any], ...] = (Headers.group, Headers.group_size)
