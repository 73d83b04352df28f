"""Eval rounds: the same held-out tasks again after every n-th policy that is published (design/live-loop#evals).

Guarantees: pure; which round is due is a function of how many policies were published, so it doesn't depend on when
anybody looks: rounds that were missed meanwhile are passed over for the newest, since workers sample with that. A
round's seeds are a function of its number. Leaves out: reading and writing (`seed_feeder`), and rewards.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice

from rolloutlog.contract.events.seeds import Fresh, Seed
from rolloutlog.contract.ids import eval_seed_id
from rolloutlog.contract.policies import Policy
from rolloutlog.contract.vocabulary import RunKind, SeedKind
from rolloutlog.producers.feeding.task_source import TaskSource


@dataclass(slots=True)
class EvalRounds:
    """`tasks` of the source, each by a group of `members`, after the first policy and every `every`-th after it."""

    source: TaskSource
    every: int = 10
    tasks: int = 32
    members: int = 1
    current: Policy | None = None
    published: int = 0
    """How many policies were read, and the newest of them."""

    def seen(self, policy: Policy) -> None:
        """One more policy was published."""
        self.current, self.published = policy, self.published + 1

    @property
    def number(self) -> int:
        """Number of the newest round that is due, from 1; 0: none is."""
        return (self.published - 1) // self.every + 1 if self.published else 0

    def seeds(self) -> list[Seed]:
        """Those of the newest round. They say the step that follows its policy, so that all rollouts of a round say the
        same, whichever policy is current when a worker makes them."""
        step = None if self.current is None else self.current.version + 1
        return [
            Seed(
                id=(name := eval_seed_id(self.source.env, key, self.number)),
                kind=SeedKind.FRESH,
                group=name,
                group_size=self.members,
                run_kind=RunKind.EVAL,
                env=self.source.env,
                task=task,
                fresh=Fresh(key=key, epoch=self.number),
                dispatch_step=step,
            )
            for _, key, task in islice(self.source.tasks(0), self.tasks)
        ]
