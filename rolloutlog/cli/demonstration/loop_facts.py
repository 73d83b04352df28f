"""What a live loop has done, counted from the headers of its events (design/live-loop#watching).

Guarantees: pure; a rollout is counted once, whatever its reader reads twice; the order of partitions doesn't matter.
Leaves out: reading (`loop_follower`), and what the trainer says of its steps, which its rows have.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from dataclasses import dataclass, field
from statistics import fmean

from rolloutlog.contract.events.event import Event
from rolloutlog.contract.events.seeds import Seed
from rolloutlog.contract.topics import Topic
from rolloutlog.contract.vocabulary import EventType, RunKind, SeedKind, Status
from rolloutlog.contract.wire.headers import Headers

RECENT = 256
"""Rollouts over which rates are taken."""
SOLVED = 0.99
"""An answer of more reward is right."""
OF_MEMBERS = frozenset({SeedKind.RESUME, SeedKind.REROLL})


def _recent() -> deque[float]:
    return deque(maxlen=RECENT)


@dataclass(slots=True)
class EvalRound:
    """Rewards of one round of held-out tasks, by environment; `step` is that of the newest policy when it was asked."""

    step: int = 0
    asked: Counter[str] = field(default_factory=Counter[str])
    rewards: dict[str, dict[str | None, float]] = field(default_factory=lambda: defaultdict(dict))
    """By environment and rollout: one that was asked again may be answered twice."""

    @property
    def means(self) -> dict[str, float]:
        """Mean reward by environment."""
        return {env: fmean(rewards.values()) for env, rewards in sorted(self.rewards.items()) if rewards}

    @property
    def mean(self) -> float:
        """Of all environments alike."""
        return fmean(self.means.values())


@dataclass(slots=True)
class LoopFacts:
    """Of a loop with those `environments`: `seeds` by kind, `ends` of groups by outcome, and how derived rollouts did
    lately."""

    environments: frozenset[str]
    seeds: Counter[str] = field(default_factory=Counter[str])
    ends: Counter[str] = field(default_factory=Counter[str])
    rollouts: Counter[str] = field(default_factory=Counter[str])
    """By status."""
    rounds: dict[int, EvalRound] = field(default_factory=dict[int, EvalRound])
    """Eval rounds by number."""
    repaired: deque[float] = field(default_factory=_recent)
    """Of rechecks, 1 where the answer was right then."""
    judged: dict[bool, deque[float]] = field(default_factory=lambda: {True: _recent(), False: _recent()})
    """Rewards of judges by whether their source was right."""
    _seen: set[str] = field(default_factory=set[str])
    _opened: set[str] = field(default_factory=set[str])
    _ended: set[str] = field(default_factory=set[str])
    _awaited: dict[str, Seed] = field(default_factory=dict[str, Seed])
    """Seeds of evals and judges by group, whose rollouts are told apart by them."""
    _early: dict[str, list[Headers]] = field(default_factory=lambda: defaultdict(list))
    """Rollouts that were read before those."""

    def take(self, event: Event) -> None:
        """Count one event of `seeds`, `rollouts` or `group-events`."""
        kind, headers = event.headers.type, event.headers
        if headers.id is None or headers.id in self._seen:
            return
        self._seen.add(headers.id)
        if kind == EventType.SEED_EMITTED:
            self._seed(event)
        elif event.topic is Topic.ROLLOUTS and (status := headers.status) is not None:
            self._rollout(headers, status)
        elif kind in (EventType.GROUP_TRAINED, EventType.GROUP_DROPPED) and headers.group is not None:
            self._ended.add(headers.group)
            self.ends[headers.reason or "trained"] += 1

    @property
    def open_groups(self) -> int:
        """Groups that were asked for and have no end yet, evals left out."""
        return len(self._opened - self._ended)

    @property
    def whole_rounds(self) -> list[EvalRound]:
        """Eval rounds that every environment has asked and that are answered, in order."""
        return [one for _, one in sorted(self.rounds.items()) if self._is_whole(one)]

    def _is_whole(self, one: EvalRound) -> bool:
        return one.asked.keys() == self.environments and all(len(one.rewards[env]) >= n for env, n in one.asked.items())

    @property
    def repair_rate(self) -> float | None:
        """Share of rechecked answers that were wrong and are right now."""
        return fmean(self.repaired) if self.repaired else None

    @property
    def balanced_accuracy(self) -> float | None:
        """Mean of how often right sources were told right, and wrong ones wrong; None while one kind is missing."""
        return fmean(map(fmean, self.judged.values())) if all(self.judged.values()) else None

    def _seed(self, event: Event) -> None:
        headers, group = event.headers, event.headers.group or ""
        if headers.seed_kind in OF_MEMBERS:  # of a group that was asked for before
            self.seeds[headers.seed_kind or ""] += 1
            return
        if is_eval := headers.kind is RunKind.EVAL:
            self.seeds["eval"] += 1
        else:
            self.seeds[headers.seed_kind or "none"] += 1
            self._opened.add(group)
        if is_eval or headers.seed_kind == SeedKind.JUDGE:
            self._awaited[group] = seed = Seed.of(event)
            if is_eval:
                one = self._round(seed)
                one.asked[seed.env] += seed.group_size
                one.step = max(one.step, (seed.dispatch_step or 1) - 1)
            for early in self._early.pop(group, ()):
                self._answered(early, seed)

    def _rollout(self, headers: Headers, status: Status) -> None:
        self.rollouts[status] += 1
        if status is not Status.COMPLETED or headers.reward is None:
            return
        if headers.seed_kind == SeedKind.RECHECK:
            self.repaired.append(float(headers.reward > SOLVED))
        elif headers.kind is RunKind.EVAL or headers.seed_kind == SeedKind.JUDGE:
            group = headers.group or ""
            if (seed := self._awaited.get(group)) is None:
                self._early[group].append(headers)
            else:
                self._answered(headers, seed)

    def _answered(self, headers: Headers, seed: Seed) -> None:
        """A rollout of an eval or of a judge."""
        reward = headers.reward or 0.0
        if seed.run_kind is RunKind.EVAL:
            self._round(seed).rewards[seed.env].setdefault(headers.rollout, reward)
        elif seed.source is not None and seed.source.reward is not None:
            self.judged[seed.source.reward > SOLVED].append(reward)

    def _round(self, seed: Seed) -> EvalRound:
        return self.rounds.setdefault(seed.fresh.epoch if seed.fresh else 0, EvalRound())
