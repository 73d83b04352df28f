"""How the members of a group stand, as sets of their numbers, a bit each (design/groups#standing).

Guarantees: a member is looked at when something was said of it, whatever the others do, so an event of a group of
thousands costs no more than one of a pair. Leaves out: how a member stands (`rolloutlog.buffer.group.member`).
"""

from __future__ import annotations

from dataclasses import dataclass

from rolloutlog.buffer.group.member import Member, MemberStatus


@dataclass(slots=True)
class MemberSets:
    """`complete` have their reward and didn't expire, of `resolved` nothing more is awaited, the prefix of `aborted`
    may be resumed; at `just_aborted` of them nobody has looked yet."""

    complete: int = 0
    resolved: int = 0
    aborted: int = 0
    just_aborted: int = 0

    def completed(self, index: int) -> None:
        """A member of which nothing was said before completed, with its reward."""
        self.complete |= 1 << index
        self.resolved |= 1 << index

    def look(self, index: int, member: Member | None) -> bool:
        """Count a member anew; True if it was complete before."""
        bit = 1 << index
        before = bool(self.complete & bit)
        self.complete, self.resolved = self.complete & ~bit, self.resolved & ~bit
        self.aborted, self.just_aborted = self.aborted & ~bit, self.just_aborted & ~bit
        status = MemberStatus.OPEN if member is None else member.status
        if member is not None and status is MemberStatus.COMPLETED and member.reward is not None:
            self.completed(index)
        elif status in (MemberStatus.FAILED, MemberStatus.CANCELLED):
            self.resolved |= bit
        elif status is MemberStatus.ABORTED:
            self.aborted |= bit
            self.just_aborted |= bit
        return before

    def are_all_resolved(self, size: int) -> bool:
        """True where that many are."""
        everybody = (1 << size) - 1
        return everybody > 0 and self.resolved & everybody == everybody


def members_in(bits: int) -> list[int]:
    """The members of a set."""
    return [index for index in range(bits.bit_length()) if bits >> index & 1] if bits else []
