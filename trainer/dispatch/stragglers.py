"""How many fresh members a group needs now: the one table of stragglers (design/trainer#stragglers).

Guarantees: pure; a policy differs from the others in one row of the table alone. Leaves out: which members are fresh
(`rolloutlog.trainer.staleness.rule`), and what becomes of a group that lacks some (`decision`).
"""

from __future__ import annotations

from typing import NamedTuple

from rolloutlog.contract.dispatch_settings import Deadline, OverProvision, Straggler


class Quorum(NamedTuple):
    """`suffice` fresh members are enough, and at most `keep` are trained. `over`: nobody else is sure to come."""

    suffice: int
    keep: int
    over: bool


def quorum(straggler: Straggler, *, needed: int, over: bool, passed: bool) -> Quorum:
    """The row for a group that says that it needs `needed`; `passed`: its deadline.

    A group is over when all members are resolved, or as many are complete as it needs: then the shard asks for no other
    again.
    """
    match straggler:
        case Deadline(k=k) if passed:
            return Quorum(min(k, needed), needed, over)
        case OverProvision(group_train=first):
            return Quorum(min(first, needed), min(first, needed), over)
        case _:
            return Quorum(needed, needed, over)


def passed(straggler: Straggler, begun: int, now: int) -> bool:
    """True once the deadline of a group that began at `begun` has passed, in milliseconds of its partition."""
    return isinstance(straggler, Deadline) and now - begun >= straggler.seconds * 1000
