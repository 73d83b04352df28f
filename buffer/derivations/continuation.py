"""*Continue*: go on from where a source's conversation was compacted, or from a whole tool result (decisions/replay#54
to #68).

Guarantees: an anchor is never in the middle of a tool turn, and never the task as it was first asked. Leaves out:
scoring, which is the innermost task's.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from rolloutlog.buffer.derivations.conversation import Conversation, restarts, tool_results
from rolloutlog.buffer.derivations.protocol import AnchorPoint, DerivationSection
from rolloutlog.contract.record.node import Message
from rolloutlog.contract.record.trajectory import Trajectory
from rolloutlog.contract.section import MOST
from rolloutlog.contract.vocabulary import AnchorKind

CONTINUE = "continue"
FINDERS = {AnchorKind.COMPACTION: restarts, AnchorKind.TOOL_CALL: tool_results}


class Continue(DerivationSection):
    """Go on from a compaction or a tool result of the source (decisions/replay#54 to #68)."""

    type: Literal["continue"] = CONTINUE
    """The derivation."""
    anchor: AnchorKind = AnchorKind.COMPACTION
    """Where in the source to go on: after a compaction, or after a tool result."""
    max_anchors: int | None = Field(default=1, ge=1, le=MOST)
    """Tool-call anchors per source; unset: all. A compaction always seeds every restart (decisions/replay#12)."""

    @model_validator(mode="after")
    def _acted_on(self) -> Continue:
        if self.anchor is AnchorKind.COMPACTION and self.max_anchors != 1:
            raise ValueError("max_anchors does nothing with anchor compaction, which seeds every restart")
        return self

    @property
    def most_anchors(self) -> int | None:
        """A compaction always seeds every restart (decisions/replay#12)."""
        return None if self.anchor is AnchorKind.COMPACTION else self.max_anchors

    @classmethod
    def anchors(cls, trajectory: Trajectory) -> list[AnchorPoint]:
        """Every restart, and the end of every whole tool turn, by kind and node; none where a node has no message."""
        talk = Conversation.of(trajectory)
        if not talk.has_messages:
            return []
        found = [(kind, node) for kind, find in FINDERS.items() for node in find(talk)]
        tokens = talk.context_tokens if found else []
        return [AnchorPoint(kind, node, tokens[node]) for kind, node in found]

    def takes(self, anchor: AnchorPoint) -> bool:
        """Those of its kind."""
        return anchor.kind == self.anchor

    def prompt(self, trajectory: Trajectory, anchor: AnchorPoint) -> list[Message]:
        """Messages from the root to the anchor, system message included (decisions/replay#58)."""
        return Conversation.of(trajectory).prompt(anchor.node)
