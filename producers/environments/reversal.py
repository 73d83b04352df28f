"""String reversal: `abcd=` is answered by `dcba`.

Guarantees: one turn, as long as the word; the reward is the share of right characters. Asked again, as *recheck* does,
the next answer counts. Leaves out: anything to call.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rolloutlog.contract.record.node import Message
from rolloutlog.producers.environments.letters import ASK, last_answer, share_right, word_tasks
from rolloutlog.producers.environments.task_environment import Reply, Task


@dataclass(slots=True, frozen=True)
class Reversal:
    """Words of `size` letters."""

    size: int = 4

    @property
    def name(self) -> str:
        """As seeds name it."""
        return "reversal"

    def tasks(self, seed: int) -> Iterator[Task]:
        """Words by chance."""
        return word_tasks(seed, self.size, self.name)

    def held_out(self, seed: int) -> Iterator[Task]:
        """Words that are never trained."""
        return word_tasks(seed, self.size, self.name, held_out=True)

    def prompt(self, task: Task) -> list[Message]:
        """The word."""
        return [{"role": "user", "content": f"{task['word']}{ASK}"}]

    def restore(self, task: Task, messages: Sequence[Message]) -> int:
        """Letters to answer: it can stand anywhere."""
        del messages
        return len(task["word"])

    def limit(self, state: int) -> int | None:
        """As many as the word has."""
        return state

    def reply(self, state: int, answer: str) -> Reply:
        """Nothing more."""
        del state, answer
        return Reply()

    def score(self, task: Task, messages: Sequence[Message]) -> float:
        """Share of right characters."""
        return share_right(last_answer(messages), task["word"][::-1])
