"""The seam to what tasks are: a prompt, turns, and a score (design/live-loop#environments).

Guarantees: an environment that speaks to this protocol only, works with every engine, and for fresh tasks, for those
that go on from a recorded conversation, and for resumed ones alike: it can be asked to stand at any point. Leaves out:
tokens and the log (`task_conversation`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar, runtime_checkable

from rolloutlog.contract.record.node import Message

State = TypeVar("State")
Task = Mapping[str, Any]


@dataclass(slots=True, frozen=True)
class Reply:
    """What an environment answers to what the policy said.

    `tool_calls` are those that it saw in it, as its message says them. `messages` go on the conversation: tool results,
    or a user's turn. `restart` begins another one, which the policy made the start of: a compaction. With neither, the
    rollout is over.
    """

    messages: Sequence[Message] = ()
    tool_calls: Sequence[Mapping[str, Any]] = ()
    restart: Sequence[Message] = ()
    facts: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """What the record shall say besides."""
    after_s: float = 0.0
    """Seconds until it is there, as tools take some; other rollouts go on meanwhile."""

    @property
    def is_over(self) -> bool:
        """Nothing more is asked."""
        return not self.messages and not self.restart


class TaskEnvironment(Protocol[State]):
    """Tasks of one kind. Each method is quick and has no side effect but on the state that it is given.

    One that can evaluate a policy has `held_out` besides (`HeldOut`)."""

    @property
    def name(self) -> str:
        """As seeds and records name it."""
        ...

    def tasks(self, seed: int) -> Iterator[Task]:
        """Fresh tasks, the same for the same seed; each a JSON object with a `key` of its own."""
        ...

    def prompt(self, task: Task) -> list[Message]:
        """The conversation that a fresh rollout of the task begins with."""
        ...

    def restore(self, task: Task, messages: Sequence[Message]) -> State:
        """The state after these messages of the task. Raises Refused where it can't stand there."""
        ...

    def limit(self, state: State) -> int | None:
        """Tokens that the next answer may have; None: as many as the engine gives."""
        ...

    def reply(self, state: State, answer: str) -> Reply:
        """What the environment says to the answer, which changes the state."""
        ...

    def score(self, task: Task, messages: Sequence[Message]) -> float:
        """Reward of the finished conversation."""
        ...


@runtime_checkable
class HeldOut(Protocol):
    """An environment with tasks that `tasks` never gives, whatever the seed: what a policy is evaluated on."""

    def held_out(self, seed: int) -> Iterator[Task]:
        """Those tasks, the same for the same seed."""
        ...
