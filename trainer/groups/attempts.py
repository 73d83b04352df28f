"""What each attempt of a group's members sampled by itself (design/trainer#report).

Guarantees: pure; an attempt that goes on from an aborted one counts without the prefix that it carries. Leaves out:
attempts that came late.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from rolloutlog.buffer.group.member import Record
from rolloutlog.contract.record.slot import Slot
from rolloutlog.contract.vocabulary import SeedKind, Status


@dataclass(slots=True)
class Attempts:
    """`earlier` are new tokens by attempt of what was superseded, `prefixes` the tokens that a standing one carries, by
    member."""

    earlier: Counter[int] = field(default_factory=Counter[int])
    prefixes: dict[int, int] = field(default_factory=dict[int, int])

    def supersede(self, slot: Slot, before: Record) -> None:
        """A record takes the place of another one."""
        self.earlier[before.attempt] += before.sampled - self.prefixes.pop(slot.member, 0)
        if slot.seed_kind == SeedKind.RESUME and before.status is Status.ABORTED:
            self.prefixes[slot.member] = before.sampled
