"""One group as a line of `rolloutlog groups --json` (design/trainer#view).

Guarantees: pure; an ended group is shown as its final event says, its masks made again for the recorded step; any other
as the trainer would decide now. Leaves out: reading the log (`group_view`).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from rolloutlog.contract.events.group_events import GroupFinal, MemberOutcome
from rolloutlog.contract.ids import rollout_id
from rolloutlog.trainer.dispatch.decision import Decision, DispatchPolicy, Drop, Held, Ready, Reroll, Waiting
from rolloutlog.trainer.dispatch.finals import outcomes_of
from rolloutlog.trainer.groups.pending_group import PendingGroup
from rolloutlog.trainer.staleness.rule import judge
from rolloutlog.trainer.staleness.verdicts import GroupVerdict


def group_row(
    pending: PendingGroup, dispatch: DispatchPolicy, step: int | None, clock: int, final: GroupFinal | None
) -> dict[str, Any]:
    """The row, judged for train step `step`; `final` is the group's live final event, if it has one."""
    if final is not None:
        tokens = [pending.tokens[m.member] for m in final.members if m.member in pending.tokens]
        again = judge(tokens, final.judged_step, dispatch.history, dispatch.rule_of(pending.env))
        status = "trained" if final.reason is None else "dropped"
        return _row(pending.id, (status, final.reason), again, _rewarded(pending, final.members))
    decision = dispatch.decide(pending, step, clock)
    members = outcomes_of(pending, decision.verdict, trained=isinstance(decision, Ready | Held))
    return _row(pending.id, _status(decision), decision.verdict, members)


def _rewarded(pending: PendingGroup, members: list[MemberOutcome]) -> list[MemberOutcome]:
    """Final events without rewards are shown with those of the records that they name."""
    known = {str(m.record.handle): m.reward for m in pending.group.members.values() if m.record is not None}
    return [m if m.reward is not None else replace(m, reward=known.get(m.handle or "")) for m in members]


def _status(decision: Decision) -> tuple[str, str | None]:
    match decision:
        case Waiting():
            return "open", None
        case Reroll():
            return "open", "expired"
        case Held(_, until):
            return "held", f"until step {until}"
        case Ready():
            return "ready", None
        case Drop(_, reason):
            return "dropped", reason


def _row(
    group: str, status: tuple[str, str | None], verdict: GroupVerdict, members: list[MemberOutcome]
) -> dict[str, Any]:
    runs: dict[int, list[list[int]]] = {m.member: m.mask_runs.tolist() for m in verdict.members}
    rows = [_member(group, member, runs.get(member.member, [])) for member in members]
    return {"group": group, "status": status[0], "reason": status[1], "step": verdict.step, "members": rows}


def _member(group: str, member: MemberOutcome, runs: list[list[int]]) -> dict[str, Any]:
    return {
        "rollout": rollout_id(group, member.member),
        "attempt": member.attempt or None,
        "reward": member.reward,
        "status": member.status,
        "verdict": member.verdict,
        "seq_staleness": member.seq_staleness,
        "response_tokens": member.response_tokens,
        "trainable_tokens": member.trainable_tokens,
        "mask_runs": runs if member.trainable_tokens else [],
    }
