"""The environment of a group, as the first good record says it (design/trainer#values).

Guarantees: once all values are read it is the one that it would be if each had been read when it came: what an unread
record says holds until that turns out to be bad, and then another one's word. Leaves out: what an environment decides.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rolloutlog.contract.record.slot import Slot
from rolloutlog.trainer.groups.announced import Announced


@dataclass(slots=True)
class NamedEnvironment:
    """`env` is None while no record says it; `by` is the member by whose unread record it is known, None: its value was
    read."""

    env: str | None = None
    by: int | None = None
    _read: tuple[int, str] | None = None
    """Offset and word of the first record that was read, while an unread one counts."""

    def announced(self, slot: Slot) -> None:
        """A record came that wasn't read yet."""
        if self.env is None and slot.env is not None:
            self.env, self.by = slot.env, slot.member

    def read(self, slot: Slot, offset: int) -> None:
        """A record at that offset is good."""
        if slot.env is None:
            return
        if self.env is None or self.by == slot.member:
            self.env, self.by = slot.env, None
        elif self.by is not None:
            self._read = min(self._read or (offset, slot.env), (offset, slot.env))

    def withdrawn(self, member: int, unread: Mapping[int, Announced]) -> None:
        """The record of a member is bad, that was announced; these others are left."""
        if self.by != member:
            return
        words = [(one.record.handle.offset, one.slot.env, i) for i, one in unread.items() if one.slot.env is not None]
        read = [] if self._read is None else [(*self._read, None)]
        _, self.env, self.by = min([*words, *read], key=lambda said: said[0], default=(0, None, None))
