"""A completed record as its headers announce it, before anybody has looked at its value (design/trainer#values).

Guarantees: everything that can be refused by headers alone was looked at; what they say of the value may be a lie, so
nothing is written by their word. Leaves out: reading the value (`rollout_facts`).
"""

from __future__ import annotations

from typing import NamedTuple

from rolloutlog.buffer.group.member import Record
from rolloutlog.contract.events.event import Event
from rolloutlog.contract.events.validation import read_headers
from rolloutlog.contract.policies import Policy
from rolloutlog.contract.record.slot import Slot
from rolloutlog.contract.vocabulary import EventType, RunKind, Status
from rolloutlog.contract.wire.claims import CLAIM
from rolloutlog.contract.wire.rejection import Rejected


class Announced(NamedTuple):
    """The record and the policies that its headers name; `event` None: memory didn't keep it."""

    slot: Slot
    record: Record
    oldest: Policy
    newest: Policy
    tokens: int
    event: Event | None

    @property
    def group(self) -> str:
        """Group id."""
        return self.slot.group

    @property
    def held(self) -> int:
        """Bytes of its value in memory."""
        return len(self.event.value or b"") if self.event else 0

    @property
    def by_handle(self) -> Announced:
        """The same, its value not in memory."""
        return self._replace(event=None)


def announced(event: Event, partitions: int) -> Announced | None:
    """What the headers of a completed training rollout say, where they say all that a decision needs; None for
    everything else, and for a body that lies elsewhere."""
    headers = event.headers
    try:
        kind, slot = read_headers(event, partitions), Slot.of(headers)
        if kind is not EventType.ROLLOUT_COMPLETED or slot.kind is RunKind.EVAL or event.value is None:
            return None
        digest, reward, tokens = headers.digest, headers.reward, headers.tokens
        oldest, newest = headers.oldest_policy, headers.newest_policy
    except Rejected:
        return None
    if digest is None or reward is None or tokens is None or oldest is None or newest is None:
        return None
    if headers.content_type == CLAIM:
        return None
    record = Record.at(event.handle, slot.attempt, Status.COMPLETED, digest, event.timestamp, reward, oldest)
    return Announced(slot, record, oldest, newest, tokens, event)
