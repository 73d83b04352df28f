"""A group that may be taken for a step. Guarantees: what its end will say is made when it is picked. Leaves out: who
picks (`sampler`)."""

from __future__ import annotations

from dataclasses import dataclass

from rolloutlog.contract.events.group_events import GroupFinal
from rolloutlog.trainer.groups.pending_group import PendingGroup
from rolloutlog.trainer.staleness.verdicts import GroupVerdict


@dataclass(slots=True, frozen=True)
class Pick:
    """A group that is ready, and the verdict on the members that are kept."""

    pending: PendingGroup
    verdict: GroupVerdict
    final: GroupFinal
