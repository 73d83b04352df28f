"""*Continue*: go on from where a source's conversation was compacted, or from a whole tool result (decisions/replay#54
to #68).

Guarantees: an anchor is never in the middle of a tool turn, and never the task as it was first asked. Leaves out:
scoring, which is the innermost task's.
"""

from __future__ import annotations

from dataclasses import dataclass

from rolloutlog.buffer.derivations.conversation import Conversation, restarts, tool_results
from rolloutlog.buffer.derivations.protocol import AnchorPoint
from rolloutlog.contract.record.node import Message
from rolloutlog.contract.record.trajectory import Trajectory
from rolloutlog.contract.vocabulary import AnchorKind, SeedKind

FINDERS = {AnchorKind.COMPACTION: restarts, AnchorKind.TOOL_CALL: tool_results}


@dataclass(slots=True, frozen=True)
class Continuation:
    """Continue from anchors of one kind."""

    anchor: AnchorKind
    kind: SeedKind = SeedKind.CONTINUE

    def anchors(self, trajectory: Trajectory) -> list[AnchorPoint]:
        """Every restart, or the end of every whole tool turn, in order of nodes; none without messages."""
        return anchor_points(trajectory, self.anchor)

    def prompt(self, trajectory: Trajectory, anchor: AnchorPoint) -> list[Message]:
        """Messages from the root to the anchor, system message included (decisions/replay#58)."""
        return Conversation(trajectory).prompt(anchor.node)


def anchor_points(trajectory: Trajectory, *kinds: AnchorKind) -> list[AnchorPoint]:
    """Anchors of those kinds in order of nodes; none where a node has no message to render."""
    if not len(trajectory.nodes):
        return []
    talk = Conversation(trajectory)
    if not talk.has_messages:
        return []
    found = [(kind, node) for kind in kinds for node in FINDERS[kind](talk)]
    tokens = talk.context_tokens if found else []
    return [AnchorPoint(kind, node, tokens[node]) for kind, node in found]
