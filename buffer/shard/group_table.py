"""The groups of a shard: open ones in detail, ended ones in short, and how many count for what.

Guarantees: open groups are in the order of their first rows; counts are brought up to date once a transaction, not once
a row. Leaves out: what rows do to a group (`fold`), and what a group knows (`rolloutlog.buffer.group`).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from rolloutlog.buffer.group.closed_group import ClosedGroup
from rolloutlog.buffer.group.group import Group
from rolloutlog.buffer.group.open_group import OpenGroup


@dataclass(slots=True)
class GroupTable:
    """Groups by id. `changed` are those whose counts are to be looked at again."""

    partition: int
    opened: dict[str, OpenGroup] = field(default_factory=dict[str, OpenGroup])
    closed: dict[str, ClosedGroup] = field(default_factory=dict[str, ClosedGroup])
    changed: set[str] = field(default_factory=set[str], compare=False)
    _resolved: int = 0
    _open_derived: int = 0
    _open_resolved: int = field(default=0, compare=False)

    def find(self, group: str) -> OpenGroup | ClosedGroup | None:
        """That group, if anything was said of it."""
        return self.closed.get(group) or self.opened.get(group)

    def entry(self, group: str) -> OpenGroup | ClosedGroup:
        """That group, open where nothing was said of it yet."""
        return self.closed.get(group) or self.open(group)

    def open(self, group: str) -> OpenGroup:
        """That open group, made when first spoken of."""
        found = self.opened.get(group)
        if found is None:
            found = self.opened[group] = OpenGroup(Group(group), self.partition)
        return found

    def close(self, group: str) -> None:
        """The group has ended."""
        opened = self.opened.pop(group)
        self._open_derived -= opened.counted_derived
        self._open_resolved -= opened.counted_whole
        self.closed[group] = ClosedGroup.of(opened)

    @property
    def resolved(self) -> int:
        """Underived groups that are resolved or ended."""
        self.settle()
        return self._resolved

    @property
    def open_derived(self) -> int:
        """Derived groups without a final event."""
        self.settle()
        return self._open_derived

    @property
    def open_resolved(self) -> int:
        """Open groups of which no member is awaited."""
        self.settle()
        return self._open_resolved

    def settle(self) -> None:
        """Bring the counts up to date with the groups that changed."""
        for group in self.changed:
            opened = self.opened.get(group)
            entry = opened or self.closed[group]
            counts = entry.is_resolved_underived
            self._resolved += counts - entry.counted
            entry.counted = counts
            if opened is not None:
                self._open_derived += opened.is_derived - opened.counted_derived
                opened.counted_derived = opened.is_derived
                self._open_resolved += opened.group.resolved - opened.counted_whole
                opened.counted_whole = opened.group.resolved
        self.changed.clear()

    def recall(self, resolved: int) -> None:
        """Go on from a shard row, which counts groups whose rows are gone as well."""
        self.settle()
        self._resolved = resolved

    def with_records_below(self, first: int) -> list[str]:
        """Open groups of which a record that stands lies below that offset of `rollouts`, where nothing is any more."""
        records = (
            (name, member.record) for name, opened in self.opened.items() for member in opened.group.members.values()
        )
        return sorted({name for name, record in records if record is not None and record.handle.offset < first})
