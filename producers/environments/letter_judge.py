"""*Letter judge*: was the source right? One letter says it, for a policy that has no words (docs/derive-seeds.md).

Guarantees: as *judge*: the answer is right when it agrees with the reward of the immediate source, above the threshold
strictly; anything but the two letters is wrong. What is asked is the source's conversation, said on, and a mark. It
shows what a derivation of one's own takes. Leaves out: what the policy could say in words (`judge`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field

from rolloutlog.buffer.derivations.conversation import Conversation
from rolloutlog.buffer.derivations.judge import last_reply
from rolloutlog.buffer.derivations.protocol import AnchorPoint, DerivationSection
from rolloutlog.contract.events.seeds import Seed
from rolloutlog.contract.record.node import Message
from rolloutlog.contract.record.trajectory import Trajectory

LETTER_JUDGE = "letter-judge"
RIGHT, WRONG = "a", "b"


class LetterJudge(DerivationSection):
    """Ask for a letter that says whether a source was right, and score it by the source's recorded reward."""

    type: Literal["letter-judge"] = LETTER_JUDGE
    """The derivation."""
    success_threshold: float = 0.99
    """A source was right if its reward is above this."""
    mark: str = Field(default="!", min_length=1)
    """What asks, after the conversation."""

    @property
    def needs_environment(self) -> bool:
        """Nobody goes on with it."""
        return False

    @classmethod
    def anchors(cls, trajectory: Trajectory) -> list[AnchorPoint]:
        """The last leaf of the main tree; none where no policy sampled on the way there."""
        talk = Conversation.of(trajectory)
        path = talk.last_branch
        if not talk.has_messages or talk.first_sampled(path) is None:
            return []
        return [AnchorPoint(LETTER_JUDGE, path[-1], talk.context_tokens[path[-1]])]

    def prompt(self, trajectory: Trajectory, anchor: AnchorPoint) -> list[Message]:
        """One user turn: what was said, and the mark."""
        said = (str(message.get("content") or "") for message in Conversation.of(trajectory).prompt(anchor.node))
        return [{"role": "user", "content": "".join(said) + self.mark}]

    def was_right(self, reward: float) -> bool:
        """What the recorded reward of a source says of it."""
        return reward > self.success_threshold

    def score(self, seed: Seed, record: Mapping[str, Any]) -> float | None:
        """1 if the letter agrees with the source's reward, else 0; None where the source has no reward."""
        if seed.source is None or seed.source.reward is None:
            return None
        return float(last_reply(record) == (RIGHT if self.was_right(seed.source.reward) else WRONG))
