"""The trainer's events on `group-events`, made from its fold and the decision on it (design/trainer#finals).

Guarantees: a final event lists every member, with handle and verdict of the record that stood and its lengths, so
that what was dropped or left over can be compared with what was trained; a handle is never one that was rejected.
Leaves out: deciding (`decision`) and writing (`rolloutlog.trainer.steps.step_writer`).
"""

from __future__ import annotations

from rolloutlog.buffer.group.member import Member, MemberStatus
from rolloutlog.contract.events.group_events import GroupFinal, MemberExpired, MemberOutcome
from rolloutlog.contract.vocabulary import DropReason, Verdict
from rolloutlog.trainer.groups.pending_group import PendingGroup
from rolloutlog.trainer.staleness.verdicts import GroupVerdict, MemberVerdict


def final_of(
    pending: PendingGroup,
    verdict: GroupVerdict,
    *,
    timeline: int,
    as_of: int,
    settings: str,
    reason: DropReason | None = None,
    detail: str | None = None,
    step: int | None = None,
    pass_number: int = 1,
) -> GroupFinal:
    """`group.trained` (reason None) or `group.dropped`, judged for `verdict.step` by the `settings` of that digest;
    `as_of` of the partition. `step` is the trainer's, where the group was judged for another."""
    return GroupFinal(
        group=pending.id,
        group_size=pending.group.size,
        timeline=timeline,
        step=verdict.step if step is None else step,
        pass_number=pass_number,
        judged_for=None if step in (None, verdict.step) else verdict.step,
        reason=reason,
        detail=detail,
        as_of=as_of,
        settings=settings,
        masks=verdict.masks_digest if reason is None else None,
        members=outcomes_of(pending, verdict, trained=reason is None),
    )


def outcomes_of(pending: PendingGroup, verdict: GroupVerdict, *, trained: bool) -> list[MemberOutcome]:
    """How every member stands; what a trained group leaves out is expired, or surplus."""
    judged = {m.member: m for m in (*verdict.stale, *verdict.members)}
    members, size = pending.group.members, pending.size
    return [_outcome(pending, members.get(index), index, judged.get(index), trained) for index in range(size)]


def expired_of(pending: PendingGroup, expired: MemberVerdict, *, step: int, timeline: int) -> MemberExpired:
    """`member.expired`: that attempt is made again."""
    record = pending.group.member(expired.member).record
    return MemberExpired(
        group=pending.id,
        group_size=pending.group.size,
        member=expired.member,
        attempt=expired.attempt,
        timeline=timeline,
        step=step,
        verdict=expired.verdict,
        seq_staleness=expired.seq_staleness,
        tries=pending.tries.get(expired.member, 0) + 1,
        handle=str(record.handle) if record else None,
    )


def _outcome(
    pending: PendingGroup, said: Member | None, index: int, judged: MemberVerdict | None, trained: bool
) -> MemberOutcome:
    member, tokens = said or Member(), pending.tokens.get(index)
    record, status = member.record, member.status
    if status is not MemberStatus.COMPLETED and (member.is_rejected or status is MemberStatus.OPEN):
        record = None
    verdict = judged.verdict if judged else None
    if judged is None and trained and record and status in (MemberStatus.COMPLETED, MemberStatus.ABORTED):
        verdict = Verdict.SURPLUS
    return MemberOutcome(
        member=index,
        attempt=record.attempt if record else member.highest,
        status=status,
        handle=str(pending.named(record.handle)) if record else None,
        reward=member.reward if record else None,
        verdict=verdict,
        seq_staleness=judged.seq_staleness if judged else None,
        response_tokens=tokens.response_tokens if tokens else 0,
        trainable_tokens=judged.trainable_tokens if judged else 0,
    )
