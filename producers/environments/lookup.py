"""A lookup by tool, in two turns: the first letter that is said calls the tool, which shows a word; say the word.

Guarantees: the call is forced, as the first turn is one letter whatever it is (an optional one is never learned); the
tool answers from the task's table, at once or, for a share of the tasks, after a while; the reward is the share of
right characters, of the call as of the word: were it of the word alone, neither could be told before the other is
right. After a tool's answer it can stand again, so *continue* may seed from there. Leaves out: wrong calls:
every letter has a word.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rolloutlog.contract.record.node import Message
from rolloutlog.producers.environments.letters import ALPHABET, ASK, last_answer, share_right, words
from rolloutlog.producers.environments.task_environment import Reply, Task


@dataclass(slots=True)
class LookupState:
    """Where a lookup stands: whether the tool was called, and which word each letter has."""

    task: Task
    called: bool


@dataclass(slots=True, frozen=True)
class Lookup:
    """Words of `size` letters. A part `slow` of the tasks has a tool that takes up to `most_s` seconds, each its
    own."""

    size: int = 4
    slow: float = 0.0
    most_s: float = 0.0

    @property
    def name(self) -> str:
        """As seeds name it."""
        return "lookup"

    def tasks(self, seed: int) -> Iterator[Task]:
        """A key, and a word for each letter."""
        return self._tasks(seed, held_out=False)

    def held_out(self, seed: int) -> Iterator[Task]:
        """The same of words that are never trained."""
        return self._tasks(seed, held_out=True)

    def _tasks(self, seed: int, *, held_out: bool) -> Iterator[Task]:
        chance = random.Random(f"keys/{seed}")
        all_words = words(seed, self.size, self.name, held_out=held_out)
        number = 0
        while True:
            table = {letter: next(all_words) for letter in ALPHABET}
            yield {"key": f"{seed}-{number}", "letter": chance.choice(ALPHABET), "table": table}
            number += 1

    def prompt(self, task: Task) -> list[Message]:
        """The letter to look up."""
        return [{"role": "user", "content": f"{task['letter']}{ASK}"}]

    def restore(self, task: Task, messages: Sequence[Message]) -> LookupState:
        """The tool was called once its answer is there."""
        return LookupState(task, any(message.get("role") == "tool" for message in messages))

    def limit(self, state: LookupState) -> int | None:
        """One letter for the call, then a word."""
        return self.size if state.called else 1

    def reply(self, state: LookupState, answer: str) -> Reply:
        """The tool's answer to the call; nothing after the word."""
        if state.called:
            return Reply()
        state.called = True
        call = {
            "id": "call-0",
            "type": "function",
            "function": {"name": "look", "arguments": f'{{"letter": "{answer}"}}'},
        }
        shown = state.task["table"].get(answer, "")
        said = [{"role": "tool", "tool_call_id": "call-0", "content": f"{shown}{ASK}"}]
        return Reply(messages=said, tool_calls=[call], after_s=self.seconds(state.task))

    def seconds(self, task: Task) -> float:
        """How long the tool takes for a task, always the same."""
        place = zlib.crc32(str(task["key"]).encode()) / 2**32
        return self.most_s * place / self.slow if place < self.slow else 0.0

    def score(self, task: Task, messages: Sequence[Message]) -> float:
        """Share of right characters, of the key and its word."""
        called = next((place for place, message in enumerate(messages) if message.get("role") == "tool"), None)
        if called is None:
            return 0.0
        call, key = last_answer(messages[:called]), str(task["letter"])
        return share_right(f"{call:1.1}{last_answer(messages[called:])}", f"{key}{task['table'][key]}")
