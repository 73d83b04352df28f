"""What must never be on the log, and where it is.

Guarantees: pure. Leaves out: what is merely counted (`ledger`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
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


def repeated_seeds(ids: Iterable[tuple[str, str, int, int]]) -> list[Violation]:
    """Seeds whose id occurs twice, from `(id, group, partition, offset)`."""
    seen: set[str] = set()
    found: list[Violation] = []
    for seed, group, partition, offset in ids:
        if seed in seen:
            found.append(Violation("seed-twice", group, None, partition, offset))
        seen.add(seed)
    return found


def repeated_finals(finals: Iterable[GroupFinal], partition: int) -> Iterator[Violation]:
    """Groups with two live final events in one pass."""
    seen: Counter[tuple[str, int]] = Counter()
    for final in finals:
        seen[final.group, final.pass_number] += 1
        if seen[final.group, final.pass_number] == 2:
            yield Violation("two-finals", final.group, None, partition)


def bad_handles(finals: Sequence[GroupFinal], fault_of: Callable[[str, Handle], str | None]) -> Iterator[Violation]:
    """Handles that live final events name twice in a pass, or wrongly: `fault_of` a group's handle says how."""
    named: Counter[tuple[int, int, int]] = Counter()
    for final in finals:
        for member in final.members:
            if member.handle is None:
                continue
            handle, rollout = Handle.parse(member.handle), rollout_id(final.group, member.member)
            place = (handle.partition, handle.offset, final.pass_number)
            named[place] += 1
            if named[place] == 2:
                yield Violation("named-twice", final.group, rollout, handle.partition, handle.offset)
            if (kind := fault_of(final.group, handle)) is not None:
                yield Violation(kind, final.group, rollout, handle.partition, handle.offset)
