"""A conversation that overflows and is compacted: read a word, write a note of it, and say the word from the note
alone.

Guarantees: the second conversation begins with what the policy wrote, as a compaction does, and with nothing else; its
start is an anchor of *continue*; the reward is the share of right characters. Leaves out: how long a context may be:
here every note is a compaction.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rolloutlog.contract.record.node import Message
from rolloutlog.producers.environments.letters import ASK, last_answer, share_right, word_tasks
from rolloutlog.producers.environments.task_environment import Reply, Task

READ, NOTE = "!", "?"
"""Ends of the prompt that asks for a note, and of one that a note begins."""


@dataclass(slots=True, frozen=True)
class Recall:
    """Words of `size` letters."""

    size: int = 4

    @property
    def name(self) -> str:
        """As seeds name it."""
        return "recall"

    def tasks(self, seed: int) -> Iterator[Task]:
        """Words by chance."""
        return word_tasks(seed, self.size, self.name)

    def held_out(self, seed: int) -> Iterator[Task]:
        """Words that are never trained."""
        return word_tasks(seed, self.size, self.name, held_out=True)

    def prompt(self, task: Task) -> list[Message]:
        """The word, of which a note is asked for."""
        return [{"role": "user", "content": f"{task['word']}{READ}"}]

    def restore(self, task: Task, messages: Sequence[Message]) -> bool:
        """Whether a note began this conversation."""
        del task
        return any(str(message.get("content")).endswith(f"{NOTE}{ASK}") for message in messages)

    def limit(self, state: bool) -> int | None:
        """A note and an answer may be as long as the word."""
        del state
        return self.size

    def reply(self, state: bool, answer: str) -> Reply:
        """The note begins the next conversation; the answer ends it."""
        return Reply() if state else Reply(restart=[{"role": "user", "content": f"{answer}{NOTE}{ASK}"}])

    def score(self, task: Task, messages: Sequence[Message]) -> float:
        """Share of right characters."""
        return share_right(last_answer(messages) if self.restore(task, messages) else "", task["word"])
