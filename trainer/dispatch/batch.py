"""A batch: the whole groups that one train step consumes, with verdicts, masks and payloads (design/trainer#draw).

Guarantees: groups are whole; members come in their number's order, kept ones only; `final` is the
event that will end their group. Leaves out: advantages (`advantages`) and tensors (`tensors`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from rolloutlog.contract.events.group_events import GroupFinal
from rolloutlog.contract.handles import Handle
from rolloutlog.contract.policies import LAST_POLICY
from rolloutlog.contract.record import value
from rolloutlog.contract.record.rollout import Rollout
from rolloutlog.contract.vocabulary import DropReason
from rolloutlog.contract.wire.refusal import text_of
from rolloutlog.trainer.dispatch.pick import Pick
from rolloutlog.trainer.groups.attempts import Attempts
from rolloutlog.trainer.groups.filters import DETAIL
from rolloutlog.trainer.groups.held_payload import Payload
from rolloutlog.trainer.groups.pending_group import PendingGroup
from rolloutlog.trainer.staleness.mask_runs import Bools, mask_of
from rolloutlog.trainer.staleness.verdicts import MemberTokens, MemberVerdict

LeftOut = DropReason | tuple[DropReason, str]
"""Why a group wasn't trained; and in words, if there are some."""


@dataclass(slots=True, frozen=True)
class DrawnMember:
    """A member of the baseline set: its reward counts; its tokens train where `verdict.mask_runs` says so.

    `rollout` is None where the stream was asked for no payloads.
    """

    member: int
    attempt: int
    handle: Handle
    reward: float
    verdict: MemberVerdict
    rollout: Rollout | None
    tokens: MemberTokens

    @property
    def mask(self) -> Bools:
        """Which response tokens are in the loss, one per response token."""
        return mask_of(self.verdict.mask_runs, self.verdict.response_tokens)


@dataclass(slots=True, frozen=True)
class DrawnGroup:
    """One whole group. `final` is the event that will be written when the step was trained. `first_ms` and `newest_ms`
    are times of its first and its newest record, `new_tokens` what its members sampled, by attempt."""

    id: str
    partition: int
    final: GroupFinal
    members: tuple[DrawnMember, ...]
    first_ms: int
    newest_ms: int
    new_tokens: Mapping[int, int]

    @property
    def step(self) -> int:
        """The train step that its final event names."""
        return self.final.step


@dataclass(slots=True, frozen=True)
class Batch:
    """What step `step` consumes; None where policies are imported, and each group has its own
    (design/trainer#imported).

    `short`: at the end of a drained log there were fewer groups than a batch has. `drawn_ms` is when it was drawn.
    """

    step: int | None
    groups: tuple[DrawnGroup, ...]
    short: bool = False
    drawn_ms: int = 0

    def leaving_out(self, reasons: Mapping[str, LeftOut]) -> tuple[Batch, list[GroupFinal]]:
        """The batch without these groups, and the events that say why. Raises ValueError for one that isn't in it."""
        if strange := reasons.keys() - {group.id for group in self.groups}:
            raise ValueError(f"groups that aren't in the batch: {', '.join(sorted(strange))}")
        kept = tuple(group for group in self.groups if group.id not in reasons)
        dropped = [_dropped(group.final, reasons[group.id]) for group in self.groups if group.id in reasons]
        return replace(self, groups=kept), dropped

    @property
    def closes(self) -> int:
        """The step that is closed with it; where each group has its own there is no going back to one, so a step that
        is none of them."""
        return LAST_POLICY if self.step is None else self.step

    def __iter__(self) -> Iterator[DrawnGroup]:
        """Its groups."""
        return iter(self.groups)

    @property
    def members(self) -> Iterator[DrawnMember]:
        """All members of all groups."""
        return (member for group in self.groups for member in group.members)

    @property
    def trainable_tokens(self) -> int:
        """Tokens in the loss: the denominator of a token mean (decisions/staleness#142)."""
        return sum(member.verdict.trainable_tokens for member in self.members)


def _dropped(final: GroupFinal, said: LeftOut) -> GroupFinal:
    """Whatever the words are, they are a text that the log can hold: another one would end no group."""
    reason, detail = said if isinstance(said, tuple) else (said, None)
    words = None if detail is None else text_of(detail)[:DETAIL]
    return final.model_copy(update={"reason": DropReason(reason), "detail": words, "masks": None})


def decoded(payload: Payload) -> Rollout:
    """The rollout of a payload that was checked when it was folded."""
    return payload.rollout or Rollout(payload.slot, value.decode(*payload.body))


def drawn(pick: Pick) -> DrawnGroup:
    """The group of a pick, decoded where its payloads are in memory."""
    members = (_member(pick.pending, verdict) for verdict in pick.verdict.members)
    kept = tuple(sorted(members, key=lambda member: member.member))
    pending = pick.pending
    return DrawnGroup(
        id=pending.id,
        partition=pending.partition,
        final=pick.final,
        members=kept,
        first_ms=pending.timestamp,
        newest_ms=pending.touched,
        new_tokens=_new_tokens(pending),
    )


def _new_tokens(pending: PendingGroup) -> dict[int, int]:
    attempts = pending.attempts or Attempts()
    counted = Counter(attempts.earlier)
    for member, tokens in pending.tokens.items():
        counted[tokens.attempt] += tokens.response_tokens - attempts.prefixes.get(member, 0)
    return dict(counted)


def _member(pending: PendingGroup, verdict: MemberVerdict) -> DrawnMember:
    member = pending.group.members[verdict.member]
    record, reward = member.record, member.reward
    if record is None or reward is None:
        raise ValueError(f"{pending.id}.{verdict.member} isn't complete")
    payload = pending.payloads.get(verdict.member)
    rollout = decoded(payload) if payload else None
    return DrawnMember(
        member=verdict.member,
        attempt=verdict.attempt,
        handle=pending.named(record.handle),
        reward=reward,
        verdict=verdict,
        rollout=rollout,
        tokens=pending.tokens[verdict.member],
    )
