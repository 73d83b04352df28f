"""How the open groups stand when a step is closed, for who looks on (design/trainer#watermarks).

Guarantees: pure; every open group counts once, and beside it whether somebody was asked again for a member of it.
Leaves out: groups of which no record has come.
"""

from __future__ import annotations

from collections.abc import Collection

from rolloutlog.trainer.dispatch.sampler import Sampler


def group_counts(sampler: Sampler, told: Collection[str]) -> dict[str, int]:
    """Open, ready, held for a later step, and lent ones, without those that are told now; of the open ones those that
    were asked again."""
    groups = [p for a in sampler.assemblies.values() for p in a.groups.values() if p.id not in told]
    lent = sum(pending.drawn for pending in groups)
    ready, held = sampler.ready, sampler.settled - sampler.ready
    return {
        "open": len(groups) - lent - ready - held,
        "ready": ready,
        "held": held,
        "lent": lent,
        "asked_again": sum(bool(p.tries) and not p.drawn and not p.resolved for p in groups),
    }
