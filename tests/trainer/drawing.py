"""Drawn groups without a broker: what a stream would yield of rollouts at hand.

Guarantees: judged and drawn by the trainer's own pure parts. Leaves out: payloads by handle.
"""

from __future__ import annotations

from typing import Any

from rolloutlog.contract.record.rollout import Rollout
from rolloutlog.trainer.dispatch.batch import DrawnGroup, drawn
from rolloutlog.trainer.dispatch.decision import Ready
from rolloutlog.trainer.dispatch.finals import final_of
from rolloutlog.trainer.dispatch.pick import Pick
from tests.trainer.desk import Desk


def drawn_group(*members: Rollout, step: int = 5, **settings: Any) -> DrawnGroup:
    """The group that these members make, drawn for `step`."""
    desk = Desk()
    desk.say(*members)
    anything: dict[str, Any] = {"drop_zero_variance": False, "min_survivors": 1}
    decision = desk.decide(step, None, group=members[0].slot.group, **(anything | settings))
    if not isinstance(decision, Ready):
        raise AssertionError(decision)
    pending = desk.pending(members[0].slot.group)
    final = final_of(pending, decision.verdict, timeline=0, as_of=desk.assembly.next_offset, settings="")
    return drawn(Pick(pending, decision.verdict, final))
