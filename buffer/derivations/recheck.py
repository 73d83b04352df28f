"""*Recheck*: the finished conversation, and one turn that asks to check the work (decisions/replay#69 to #74).

Guarantees: the prompt ends in a whole answer of the policy's own: calls that were never answered are cut away with all
that came after them, and so are trailing user turns. Leaves out: scoring, which is the innermost task's.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from rolloutlog.buffer.derivations.conversation import Conversation, finished, tokens_in
from rolloutlog.buffer.derivations.protocol import AnchorPoint, DerivationSection
from rolloutlog.contract.record.node import Message
from rolloutlog.contract.record.trajectory import Trajectory

RECHECK = "recheck"
INSTRUCTION = (
    "Go over your answer once more. Check each step against the task, correct whatever is wrong, and then give your "
    "final answer again."
)


class Recheck(DerivationSection):
    """Ask whether the finished work of a source is right (decisions/replay#69 to #74)."""

    type: Literal["recheck"] = RECHECK
    """The derivation."""
    instruction: str = Field(default=INSTRUCTION, min_length=1)
    """Text of the turn that asks to check the work."""

    @classmethod
    def anchors(cls, trajectory: Trajectory) -> list[AnchorPoint]:
        """The end of the main tree's last conversation, cleaned; none where no answer is left of it."""
        talk = Conversation.of(trajectory)
        path = finished(talk)
        return [AnchorPoint(RECHECK, path[-1], talk.context_tokens[path[-1]])] if path else []

    def tokens(self, anchor: AnchorPoint) -> int:
        """Tokens of the conversation and, about, of the turn that asks."""
        return anchor.tokens + tokens_in(self.instruction)

    def prompt(self, trajectory: Trajectory, anchor: AnchorPoint) -> list[Message]:
        """Messages up to that end, system message included, and the turn that asks."""
        return [*Conversation.of(trajectory).prompt(anchor.node), {"role": "user", "content": self.instruction}]
