"""Which members must be made again: aborted, expired, or lost with their lease (design/groups#attempts).

Guarantees: a function of the group and of what was lost; the next attempt is one above every attempt seen. Once as many
members are complete as the group needs, only expired ones are made again. Leaves out: when a lease is lost (`leases`).
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from rolloutlog.buffer.group.member import Member, MemberStatus, Record
from rolloutlog.buffer.group.open_group import OpenGroup
from rolloutlog.contract.events.seeds import Ask
from rolloutlog.contract.vocabulary import SeedKind

FIRST_ATTEMPT = 1


@dataclass(slots=True, frozen=True)
class MemberRetry:
    """One member to be made again; `prefix` is the aborted record that a resume goes on with, `expired`: it was too
    old."""

    member: int
    attempt: int
    prefix: Record | None = None
    expired: bool = False

    @property
    def kind(self) -> SeedKind:
        """Resume with a prefix, reroll without."""
        return SeedKind.REROLL if self.prefix is None else SeedKind.RESUME


def due_retries(opened: OpenGroup, lost: AbstractSet[int] = frozenset()) -> list[MemberRetry]:
    """Members of a group with an origin seed that must be asked for now; `lost` are those whose lease ran out."""
    group = opened.group
    if opened.seed is None or group.end is not None:
        return []
    enough = len(group.complete_members) >= group.needed
    found: list[MemberRetry] = []
    for index in group.open_members:
        member = group.members.get(index) or Member()
        expired = member.expired > 0 and member.expired == member.highest
        aborted = member.status is MemberStatus.ABORTED and member.attempt == member.highest
        if expired or (not enough and (aborted or (index in lost and not _is_pending(member)))):
            found.append(MemberRetry(index, max(member.highest, FIRST_ATTEMPT) + 1, _prefix(member), expired))
    return found


def _is_pending(member: Member) -> bool:
    """Completed, and only its reward is awaited: it holds no lease."""
    return member.status is MemberStatus.COMPLETED


def _prefix(member: Member) -> Record | None:
    return member.record if member.status is MemberStatus.ABORTED else None


def members_lost_with(opened: OpenGroup, seed: str) -> set[int]:
    """Members that a seed asked for and that nobody else was asked for since: lost when its lease is."""
    return {ask.member for ask in opened.asked_by(seed) if _is_last(opened, ask)}


def _is_last(opened: OpenGroup, ask: Ask) -> bool:
    member = opened.group.members.get(ask.member) or Member()
    return max(member.highest, FIRST_ATTEMPT) == ask.attempt and ask.member in opened.group.open_members
