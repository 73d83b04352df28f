"""What must never be on the log, and where it is.

Guarantees: pure. Leaves out: what is merely counted (`ledger`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from rolloutlog.contract.events.group_events import GroupFinal
from rolloutlog.contract.handles import Handle
from rolloutlog.contract.ids import rollout_id


@dataclass(frozen=True, slots=True)
class Violation:
    """Something that must never be on the log, and where it is."""

    kind: str
    group: str | None = None
    rollout: str | None = None
    partition: int | None = None
    offset: int | None = None


NAMED_TWICE = "named-twice"


def bad_handles(final: GroupFinal, fault_of: Callable[[Handle], str | None]) -> Iterator[Violation]:
    """Handles that a final event names twice, or wrongly: `fault_of` a handle says how."""
    named: Counter[tuple[int, int]] = Counter()
    for member in final.members:
        if member.handle is None:
            continue
        handle, rollout = Handle.parse(member.handle), rollout_id(final.group, member.member)
        place = (handle.partition, handle.offset)
        named[place] += 1
        if named[place] == 2:
            yield Violation(NAMED_TWICE, final.group, rollout, *place)
        if (kind := fault_of(handle)) is not None:
            yield Violation(kind, final.group, rollout, *place)
