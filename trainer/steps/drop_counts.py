"""What a trainer dropped and let expire since its last step, in numbers (design/trainer#report).

Guarantees: pure; numbers alone, however long a trainer waits. Leaves out: reasons for people who wait (`discards`).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from rolloutlog.buffer.group.member import MemberStatus
from rolloutlog.trainer.dispatch.unwritten_events import UnwrittenEvents


@dataclass(slots=True, frozen=True)
class DropCounts:
    """Groups dropped by reason with their tokens, members expired, and the rewards of `completed` members that were
    dropped."""

    groups: Counter[str] = field(default_factory=Counter[str])
    tokens: int = 0
    expired: int = 0
    completed: int = 0
    rewards: float = 0.0

    def plus(self, events: UnwrittenEvents) -> DropCounts:
        """With those of more events."""
        members = [member for final in events.dropped for member in final.members]
        rewards = [m.reward for m in members if m.status == MemberStatus.COMPLETED and m.reward is not None]
        return DropCounts(
            self.groups + Counter(str(final.reason) for final in events.dropped),
            self.tokens + sum(member.response_tokens for member in members),
            self.expired + len(events.expired),
            self.completed + len(rewards),
            self.rewards + sum(rewards),
        )
