"""What the small environments share: words by chance and tasks of them, a graded score, and the last answer.

Guarantees: words are a function of the seed; one in eight is held out, and is among those of no seed; a score is the
share of places that are right, so that there is something to learn before everything is. Leaves out: the environments.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Iterator, Sequence

from rolloutlog.contract.record.node import Message
from rolloutlog.producers.environments.task_environment import Task

ALPHABET = "abcdefgh"
ASK = "="
"""Ends a prompt."""
HELD_OUT = 8
"""One word in so many is held out."""


def words(seed: int, size: int, salt: str, *, held_out: bool = False) -> Iterator[str]:
    """Words of that size, without end: those to train on, or those that are held out."""
    chance = random.Random(f"{salt}/{seed}")
    while True:
        word = "".join(chance.choices(ALPHABET, k=size))
        if (zlib.crc32(word.encode()) % HELD_OUT == 0) is held_out:
            yield word


def word_tasks(seed: int, size: int, salt: str, *, held_out: bool = False) -> Iterator[Task]:
    """A task for each such word."""
    for number, word in enumerate(words(seed, size, salt, held_out=held_out)):
        yield {"key": f"{seed}-{number}", "word": word}


def share_right(answer: str, expected: str) -> float:
    """Places at which the answer is right, of the longer one's."""
    longest = max(len(answer), len(expected), 1)
    return sum(a == b for a, b in zip(answer, expected, strict=False)) / longest


def last_answer(messages: Sequence[Message]) -> str:
    """Text of the last message that the policy said; nothing where it said none."""
    said = (message.get("content") for message in reversed(messages) if message.get("role") == "assistant")
    return str(next(said, "") or "")
