"""*Judge*: a bounded transcript of a source, and the question whether it was right (decisions/replay#75 to #84).

Guarantees: a rollout is right when its verdict agrees with the reward of the *immediate* source, above the threshold
strictly; a reply without one plain verdict is wrong; braces in a transcript or a template are text like any other. A
policy that has no words for a verdict is asked for `answers`, and shown what was `said` alone. Leaves out:
the balance of right and wrong sources (`rolloutlog.buffer.sources.live`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Literal, cast

from pydantic import Field, field_validator

from rolloutlog.buffer.derivations.conversation import CHARACTERS_PER_TOKEN, Conversation, tokens_in
from rolloutlog.buffer.derivations.protocol import AnchorPoint, DerivationSection
from rolloutlog.buffer.derivations.transcript import said_alone, transcript
from rolloutlog.contract.events.seeds import Seed
from rolloutlog.contract.record.node import Message
from rolloutlog.contract.record.trajectory import Trajectory
from rolloutlog.contract.section import MOST

JUDGE = "judge"
PARSEABLE = "replay/judge_parseable"
"""The name that the field has for it."""
PLACE = "{transcript}"
INSTRUCTION = f"""Below is the record of another attempt at a task. Find out whether its final answer is right.

{PLACE}

Say briefly what decides it. Then end with one line that is exactly `VERDICT: CORRECT` or `VERDICT: INCORRECT`."""

_VERDICT = re.compile(r"(?<!\w)VERDICT:[^\S\n]*(CORRECT|INCORRECT)(?!\w)", re.IGNORECASE)


class Judge(DerivationSection):
    """Ask whether a source was right, and score the answer by its recorded reward (decisions/replay#75 to #84)."""

    type: Literal["judge"] = JUDGE
    """The derivation."""
    success_threshold: float = 0.5
    """A source was right if its reward is above this."""
    instruction: str = INSTRUCTION
    """What is asked; `{transcript}` stands for the source's conversation."""
    max_transcript_chars: int = Field(default=60_000, ge=1_000, le=MOST)
    """Characters of the transcript, at most."""
    transcript: Literal["blocks", "said"] = "blocks"
    """Blocks of role, text and tool calls; or what was said alone, on end."""
    answers: list[str] | None = None
    """Replies that say right and wrong, for a policy that has no words; unset: the last plain line with a verdict."""

    @field_validator("instruction")
    @classmethod
    def _has_a_place(cls, text: str) -> str:
        if PLACE not in text:
            raise ValueError(f"no {PLACE} in it: nobody could tell what is to be judged")
        return text

    @field_validator("answers")
    @classmethod
    def _differ(cls, answers: list[str] | None) -> list[str] | None:
        if answers is not None and (
            len(answers) != 2 or len({*answers, ""}) != 3 or answers != [*map(str.strip, answers)]
        ):
            raise ValueError(f"{answers}: the two replies that say right and wrong differ, without space around them")
        return answers

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
        return [AnchorPoint(JUDGE, path[-1], talk.context_tokens[path[-1]])]

    def tokens(self, anchor: AnchorPoint) -> int:
        """Tokens of the prompt, about: of the transcript as far as it is shown, and of what is asked."""
        shown = min(anchor.tokens, self.max_transcript_chars // CHARACTERS_PER_TOKEN)
        return shown + tokens_in(self.instruction)

    def prompt(self, trajectory: Trajectory, anchor: AnchorPoint) -> list[Message]:
        """One user turn with the transcript of the conversation that ends at the anchor."""
        show = said_alone if self.transcript == "said" else transcript
        shown = show(Conversation.of(trajectory).prompt(anchor.node), self.max_transcript_chars)
        return [{"role": "user", "content": self.instruction.replace(PLACE, shown)}]

    def was_right(self, reward: float) -> bool:
        """What the recorded reward of a source says of it (decisions/replay#81)."""
        return reward > self.success_threshold

    def score(self, seed: Seed, record: Mapping[str, Any]) -> float | None:
        """1 if the verdict agrees with the source's reward, else 0; None where the source has no reward."""
        if seed.source is None or seed.source.reward is None:
            return None
        return float(self._verdict(record) is self.was_right(seed.source.reward))

    def metrics(self, seed: Seed, record: Mapping[str, Any]) -> dict[str, float]:
        """Whether the reply has one plain verdict (decisions/replay#83)."""
        return {PARSEABLE: float(self._verdict(record) is not None)}

    def _verdict(self, record: Mapping[str, Any]) -> bool | None:
        reply = last_reply(record)
        if self.answers is None:
            return verdict_of(reply)
        return dict(zip(self.answers, (True, False), strict=False)).get(reply.strip())


def verdict_of(text: str) -> bool | None:
    """The verdict of the last line that has one and no other; None without (decisions/replay#80)."""
    for line in reversed(text.splitlines()):
        verdicts = {found.upper() for found in _VERDICT.findall(line)}
        if len(verdicts) == 1:
            return verdicts == {"CORRECT"}
    return None


def last_reply(record: Mapping[str, Any]) -> str:
    """Text of the last assistant message of a record; empty without."""
    nodes = cast("list[dict[str, Any]]", record.get("nodes") or [])
    messages = (node.get("message") for node in reversed(nodes))
    for message in messages:
        if isinstance(message, dict) and (said := cast("dict[str, Any]", message)).get("role") == "assistant":
            content = said.get("content")
            return content if isinstance(content, str) else ""
    return ""
