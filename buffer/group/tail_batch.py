"""Tail batching: seeds that make expired members again are held back until there are enough, or one has waited too long
(decisions/staleness#90 to #93).

Guarantees: pure but for the clock that is passed in; nothing is held for longer than `wait_s`, and nothing at all where
`size` is 1. It says when, never what: nothing here is in the fold, and a new owner holds anew. Leaves out: which
members expired (`re_emission`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from rolloutlog.buffer.sources.draws import share
from rolloutlog.contract.settings import RerollGroup, RerollMembers, TrainerSettings

Attempt = tuple[int, int]
"""Member, attempt."""


@dataclass(slots=True)
class TailBatch:
    """What is held back, and since when; `size` is this shard's part of the run's number."""

    size: int = 1
    wait_s: float = 60.0
    _since: dict[str, dict[Attempt, float]] = field(default_factory=dict[str, dict[Attempt, float]])

    def follow(self, trainer: TrainerSettings, partition: int, partitions: int) -> None:
        """The trainer settings that hold now."""
        expiry = trainer.staleness.expiry
        if isinstance(expiry, RerollMembers | RerollGroup):
            self.size, self.wait_s = max(1, share(expiry.tail_batch, partitions, partition)), expiry.tail_wait_s
        else:
            self.size = 1

    def hold(self, group: str, attempts: Iterable[Attempt], clock: float) -> None:
        """These attempts at members of a group are due, and no others of it; known ones go on waiting."""
        known = self._since.pop(group, {})
        if due := {attempt: known.get(attempt, clock) for attempt in attempts}:
            self._since[group] = due

    def due(self, clock: float) -> list[str]:
        """The groups whose held members may be asked for now; they are held no more."""
        waiting = [since for held in self._since.values() for since in held.values()]
        if not waiting or (len(waiting) < self.size and clock - min(waiting) < self.wait_s):
            return []
        groups = sorted(self._since)
        self._since.clear()
        return groups
