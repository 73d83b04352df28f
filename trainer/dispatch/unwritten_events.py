"""Events that the trainer has yet to write, besides its steps: expired members, dropped groups, rejected records.

Guarantees: each carries the step that it was judged for, so it may go into that step's transaction or into one of
its own before the trainer waits or ends (design/trainer#steps). Leaves out: writing.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from rolloutlog.contract.events.dead_letters import rejected_event
from rolloutlog.contract.events.event import Event, Outgoing
from rolloutlog.contract.events.group_events import GroupFinal, MemberExpired, expired_event, final_event
from rolloutlog.contract.events.run import TRAINER_SOURCE
from rolloutlog.contract.wire.rejection import Rejected

SOURCE = TRAINER_SOURCE
"""`ce_source` of everything that the trainer writes."""


@dataclass(slots=True)
class UnwrittenEvents:
    """Events that aren't on the log yet."""

    expired: list[MemberExpired] = field(default_factory=list[MemberExpired])
    dropped: list[GroupFinal] = field(default_factory=list[GroupFinal])
    rejected: list[tuple[Event, Rejected]] = field(default_factory=list[tuple[Event, Rejected]])

    def __bool__(self) -> bool:
        """True while there is something to write."""
        return bool(self.expired or self.dropped or self.rejected)

    def events(self, now: int) -> list[Outgoing]:
        """The events to write; dead letters first, since what follows relies on them."""
        return [
            *(rejected_event(event, rejected, source=SOURCE, now=now) for event, rejected in self.rejected),
            *(expired_event(expired, source=SOURCE, now=now) for expired in self.expired),
            *(final_event(final, source=SOURCE, now=now) for final in self.dropped),
        ]

    def take(self) -> UnwrittenEvents:
        """What there is now, for a transaction: what comes from now on is for the next one."""
        taken = UnwrittenEvents(self.expired, self.dropped, self.rejected)
        self.expired, self.dropped, self.rejected = [], [], []
        return taken

    def put_back(self, taken: UnwrittenEvents) -> None:
        """Their transaction wrote nothing: they come first in the next one."""
        self.expired[:0], self.dropped[:0], self.rejected[:0] = taken.expired, taken.dropped, taken.rejected
