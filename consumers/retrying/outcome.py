"""What became of a dead letter that was tried again, and what helps where that is nothing.

Guarantees: a closed set of words, each with one line of advice. Leaves out: deciding (`rejected_rollout`).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from rolloutlog.consumers.retrying.letter import Letter


class Outcome(StrEnum):
    """What became of it."""

    PUBLISHED = "published"
    THERE = "there"
    FAILS = "fails"
    GONE = "gone"
    ENDED = "ended"
    SUPERSEDED = "superseded"
    EXPIRED = "expired"
    DERIVATION = "derivation"
    LINE = "line"
    OTHER = "other"


ADVICE: dict[Outcome, str] = {
    Outcome.PUBLISHED: "sound now: it is on `rollouts` again, in the place of the rejected one",
    Outcome.THERE: "a sound record of this attempt is on the log already",
    Outcome.FAILS: "still rejected",
    Outcome.GONE: "the record isn't on the log any more",
    Outcome.ENDED: "its group has ended without it",
    Outcome.SUPERSEDED: "a later attempt of this member is on the log",
    Outcome.EXPIRED: "this attempt had become too old",
    Outcome.DERIVATION: "the record is sound; after a fix start the buffer anew, or `buffer reindex` to find anchors",
    Outcome.LINE: "a line of a file: import the file again",
    Outcome.OTHER: "no rollout: let its writer say it again; `rolloutlog buffer reindex` folds seeds and final events",
}


@dataclass(slots=True, frozen=True)
class Retried:
    """A letter, what became of it, and why; `why` is the advice of the outcome where there is no more to say."""

    letter: Letter
    outcome: Outcome
    why: str = ""

    def as_json(self) -> dict[str, Any]:
        """One line of `rolloutlog dead-letters retry --json`."""
        known = {"place": self.letter.place, "reason": self.letter.reason, "outcome": self.outcome}
        return known | {"why": self.why or ADVICE[self.outcome]}
