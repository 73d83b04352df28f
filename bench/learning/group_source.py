"""Which group comes next in one process: a fresh task, or one that is derived from an older rollout.

Guarantees: tasks, anchors and prompts are those of the environments and derivations themselves, by the run's settings;
a seed says which come. Leaves out: the buffer's pool and its draws over a log.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from rolloutlog.buffer.derivations.catalogue import derivation_of
from rolloutlog.buffer.derivations.protocol import AnchorPoint, Balanced, Derivation
from rolloutlog.contract.events.seeds import Seed, Source
from rolloutlog.contract.record.trajectory import Trajectory
from rolloutlog.contract.settings import Settings
from rolloutlog.producers.environments.environment_table import EnvironmentTable, environment_named

KEPT = 256
"""Newest candidates of each derivation, and of each side of one that balances."""


class _Candidate(NamedTuple):
    trajectory: Trajectory
    anchor: AnchorPoint
    seed: Seed


class GroupSource:
    """Seeds of groups; `chances` say how often each derivation is asked, the rest is fresh."""

    def __init__(self, settings: Settings, chances: Mapping[str, float], seed: int) -> None:
        made = [environment_named(name) for name in settings.loop.environments]
        self.environments, self.names = EnvironmentTable(made), [each.name for each in made]
        self._size = settings.buffer.group_size
        self._fresh = {name: self.environments.of(name).tasks(seed) for name in self.names}
        self._chances, self._random, self._number = chances, random.Random(seed), 0
        self._settings = {each.name: each for each in settings.buffer.derivations if each.name in chances}
        self.derivations: dict[str, Derivation] = {n: derivation_of(s.derive) for n, s in self._settings.items()}
        self._pools: dict[tuple[str, bool], deque[_Candidate]] = {
            (name, side): deque(maxlen=KEPT) for name in chances for side in (True, False)
        }

    def next(self) -> Seed:
        """The seed of the next group."""
        self._number += 1
        for name, chance in self._chances.items():
            if self._random.random() < chance and (drawn := self._drawn(name)) is not None:
                return self._derived(name, drawn)
        env = self.names[self._number % len(self.names)]
        return Seed(
            id=f"s-{self._number}", kind="fresh", group=f"g-{self._number}", group_size=self._size, env=env,
            task=dict(next(self._fresh[env])),
        )  # fmt: skip

    def finished(self, seed: Seed, trajectories: Sequence[Trajectory]) -> None:
        """One rollout of a fresh group may be a source from now on."""
        made = self._random.choice(trajectories)
        if seed.derivation is not None or made.reward is None:
            return
        for name, derivation in self.derivations.items():
            limit = self._settings[name].select.max_source_reward
            if limit is not None and made.reward > limit:
                continue
            side = derivation.was_right(made.reward) if isinstance(derivation, Balanced) else True
            for anchor in derivation.anchors(made):
                if derivation.takes(anchor):
                    self._pools[name, side].append(_Candidate(made, anchor, seed))

    def _drawn(self, name: str) -> _Candidate | None:
        balanced = isinstance(self.derivations[name], Balanced)
        pools = [self._pools[name, side] for side in ((True, False) if balanced else (True,))]
        return self._random.choice(self._random.choice(pools)) if all(pools) else None

    def _derived(self, name: str, drawn: _Candidate) -> Seed:
        derivation, own = self.derivations[name], self._settings[name]
        return Seed(
            id=f"s-{self._number}", kind=derivation.type, group=f"g-{self._number}", group_size=self._size,
            env=drawn.seed.env, derivation=name, task=drawn.seed.task, depth=1, budget=own.budget,
            messages=derivation.prompt(drawn.trajectory, drawn.anchor),
            source=Source(rollout="r", attempt=1, handle="0/0/0", reward=drawn.trajectory.reward),
        )  # fmt: skip
