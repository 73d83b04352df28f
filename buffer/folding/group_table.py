"""The groups of a shard: open ones, ended ones in detail, those forgotten by their ids, and how many count for what.

Guarantees: open groups are in the order of their first rows; counts are brought up to date once a transaction, not once
a row. Leaves out: what rows do to a group (`fold`), and what a group knows (`rolloutlog.buffer.group`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from heapq import heappop, heappush

from rolloutlog.buffer.group.closed_group import ClosedGroup
from rolloutlog.buffer.group.closed_groups import ClosedGroups
from rolloutlog.buffer.group.ended_ids import EndedIds
from rolloutlog.buffer.group.group import Group
from rolloutlog.buffer.group.open_group import OpenGroup


@dataclass(slots=True)
class GroupTable:
    """Groups by id. `changed` are those whose counts are to be looked at again, `touched` ended ones of which something
    changed; `unread` are ended ones by where on `rollouts` they end, until it is read so far."""

    partition: int
    opened: dict[str, OpenGroup] = field(default_factory=dict[str, OpenGroup])
    closed: ClosedGroups = field(default_factory=ClosedGroups)
    forgotten: EndedIds = field(default_factory=EndedIds)
    changed: set[str] = field(default_factory=set[str], compare=False)
    touched: set[str] = field(default_factory=set[str], compare=False)
    unread: list[tuple[int, str]] = field(default_factory=list[tuple[int, str]], compare=False)
    _resolved: int = 0
    _open_derived: int = 0
    _open_resolved: int = field(default=0, compare=False)

    def find(self, group: str) -> OpenGroup | ClosedGroup | None:
        """That group, if anything was said of it and it isn't forgotten."""
        return self.opened.get(group) or self.closed.find(group)

    def entry(self, group: str) -> OpenGroup | ClosedGroup:
        """That group, which isn't forgotten; open where nothing was said of it yet."""
        return self.opened.get(group) or self.closed.find(group) or self.open(group)

    def is_forgotten(self, group: str) -> bool:
        """True for a group of which only the id is here."""
        return group not in self.opened and group not in self.closed and group in self.forgotten

    def is_late(self, group: str, offset: int) -> bool:
        """True where what lies there on `rollouts` comes too late for its group."""
        if (closed := self.closed.find(group)) is not None:
            return closed.is_late(offset)
        return self.is_forgotten(group)

    def open(self, group: str) -> OpenGroup:
        """That open group, made when first spoken of."""
        found = self.opened.get(group)
        if found is None:
            found = self.opened[group] = OpenGroup(Group(group), self.partition)
        return found

    def close(self, group: str, as_of: int, final_at: int | None) -> ClosedGroup:
        """The group has ended, as of there; the lowest counts."""
        found = self.closed.find(group)
        if found is None:
            self.open(group)
            self.closed[group] = found = ClosedGroup.of(self._take_out(group), as_of)
        found.end(as_of, final_at)
        heappush(self.unread, (found.as_of, group))
        return found

    def replace(self, group: str, entry: OpenGroup | ClosedGroup) -> None:
        """That is all that was folded of a group."""
        self.settle()
        if group in self.opened:
            self._take_out(group)
        self.closed.pop(group, None)
        if isinstance(entry, OpenGroup):
            self.opened[group] = entry
        else:
            self.closed[group] = entry
            heappush(self.unread, (entry.as_of, group))
        self.changed.add(group)

    def rest(self, group: str, packed: bytes) -> ClosedGroup:
        """Those bytes are all that was folded of an ended group, which counts already; it is looked at once more.
        Raises ValueError for others."""
        if group in self.opened:
            self._take_out(group)
        self.changed.discard(group)
        self.touched.add(group)
        return self.closed.rest(group, packed)

    def _take_out(self, group: str) -> OpenGroup:
        opened = self.opened.pop(group)
        self._open_derived -= opened.counted_derived
        self._open_resolved -= opened.counted_whole
        return opened

    def forget(self, group: str, name: bytes) -> None:
        """Only the id of that group stays."""
        self.settle()
        self.closed.pop(group, None)
        if group in self.opened:  # the rows of its end lie below those that are read
            self._take_out(group)
        self.forgotten.add([name])

    def read_to(self, next_offset: int) -> None:
        """`rollouts` is read so far."""
        while self.unread and self.unread[0][0] <= next_offset:
            _, group = heappop(self.unread)
            if (closed := self.closed.find(group)) is not None:
                closed.read_to(next_offset)

    @property
    def resolved(self) -> int:
        """Underived groups that are resolved or ended."""
        self.settle()
        return self._resolved

    @property
    def underived(self) -> int:
        """Groups that train and aren't derived, as a good record says, whatever became of them."""
        said = (entry.kin.recorded for entry in (*self.opened.values(), *self.closed.values()))
        return sum(kinship is not None and kinship.is_underived for kinship in said)

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
            entry = opened or self.closed.find(group)
            if entry is None:
                continue  # it is forgotten
            if opened is None:
                self.touched.add(group)
            counts = entry.is_resolved_underived
            self._resolved += counts - entry.counted
            entry.counted = counts
            if opened is not None:
                self._open_derived += opened.is_derived - opened.counted_derived
                opened.counted_derived = opened.is_derived
                self._open_resolved += opened.group.resolved - opened.counted_whole
                opened.counted_whole = opened.group.resolved
        self.changed.clear()
        self.closed.put_away()

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
