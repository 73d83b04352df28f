"""A policy that learns in one process: groups are sampled, judged by the staleness rule, and trained, step by step.

Guarantees: conversations, masks, tensors, losses and optimiser steps are those of the project, by the demo's settings;
asynchronous arms keep a batch in a queue for `lag` steps, while rollouts go on over updates in place. The clock is CPU
time of this process, and what it waits for slow tools when there is nothing else to do (`skipping_loop`). Leaves out:
Kafka, the buffer's draws, and members that are made again: what is too old goes.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean

import torch

from bench.learning.group_source import GroupSource
from bench.learning.skipping_loop import SkippingLoop
from bench.learning.stepped_engine import SteppedEngine
from rolloutlog.buffer.derivations.protocol import Scoring
from rolloutlog.contract.events.group_events import GroupFinal
from rolloutlog.contract.events.seeds import Seed
from rolloutlog.contract.handles import Handle
from rolloutlog.contract.policies import History, Policy
from rolloutlog.contract.record.rollout import Rollout
from rolloutlog.contract.settings import Settings
from rolloutlog.policy.decoding import Decoder
from rolloutlog.policy.tokenizer import CharTokenizer
from rolloutlog.producers.endings import with_facts
from rolloutlog.producers.workers.engine_answer import engine_answer
from rolloutlog.producers.workers.environment import Dispatch
from rolloutlog.trainer.batches.mini_batches import mini_batches
from rolloutlog.trainer.batches.rank_share import rank_shares
from rolloutlog.trainer.batches.samples import samples_of
from rolloutlog.trainer.dispatch.batch import DrawnGroup, DrawnMember
from rolloutlog.trainer.staleness.rule import Rule, judge
from rolloutlog.trainer.staleness.verdicts import MemberTokens
from rolloutlog.trainer.training.model_choice import chosen_model, chosen_optimizer
from rolloutlog.trainer.training.model_step import ModelStep

LEARNED, WINDOW = 0.9, 32
"""Learned is a mean reward above this, over so many fresh groups of each environment."""
TURNS = 8
"""So often other tasks of the event loop run between two tokens, which is enough for what one answer leads to."""
MOMENT_S = 0.01
"""How long it waits at a time for slow tools."""


@dataclass(slots=True, frozen=True)
class Arm:
    """What is on. `chances` of each derivation; `masks`: whether tokens may be too old one by one."""

    name: str
    chances: dict[str, float]
    lag: int = 1
    masks: bool = True


@dataclass(slots=True)
class Learning:
    """How it went: when it had learned (None: not within the limit), and what that took."""

    arm: str
    seed: int
    learned: bool = False
    seconds: float = 0.0
    steps: int = 0
    rollouts: int = 0
    tokens: int = 0
    masked: int = 0
    dropped: int = 0
    rewards: dict[str, float] = field(default_factory=dict[str, float])


Group = tuple[Seed, list[Rollout]]


class OneProcess:
    """One arm with one seed: `await OneProcess(settings, arm, seed).run(limit_s)`."""

    def __init__(self, settings: Settings, arm: Arm, seed: int) -> None:
        training = settings.training.model_copy(update={"seed": seed})
        self._settings, self._arm = settings.model_copy(update={"training": training}), arm
        tokenizer = CharTokenizer(str(settings.worker.engine["letters"]))
        model, sampler = chosen_model(self._settings), chosen_model(self._settings)
        self._stepping = ModelStep(model, chosen_optimizer(settings.optimizer, model), self._settings)
        context = int(getattr(settings.model, "context", 64))
        rows = 2 * settings.trainer.batch_groups * settings.buffer.group_size
        decoder = Decoder(sampler, Policy(0, 0), rows=rows, end=tokenizer.end, temperature=1.0, seed=seed)  # pyright: ignore[reportArgumentType]
        self._engine = SteppedEngine(decoder, tokenizer, context)
        self._source = GroupSource(settings, arm.chances, seed)
        staleness = settings.trainer.staleness
        if not arm.masks:
            staleness = staleness.model_copy(update={"max_token_staleness": None})
        self._rule, self._history = Rule.of(staleness, settings.trainer.sync_period, live=True), History()
        self._history.start(0, None, 0)
        self._history.publish(Policy(0, 0))
        self._running, self._ready = set[asyncio.Task[Group]](), deque[Group]()
        self._recent = {name: deque[float](maxlen=WINDOW) for name in self._source.names}
        self._made = Learning(arm.name, seed)

    async def run(self, limit_s: float) -> Learning:
        """Until it has learned, or the time is over."""
        clock = asyncio.get_running_loop().time
        began = clock()
        while not self._made.learned and self._made.seconds < limit_s:
            await self._sampled()
            self._train()
            self._made.seconds = clock() - began
            self._made.rewards = {name: fmean(known) for name, known in self._recent.items() if known}
            full = all(len(known) == WINDOW for known in self._recent.values())
            self._made.learned = full and min(self._made.rewards.values()) > LEARNED
        for task in self._running:
            task.cancel()
        return self._made

    async def _sampled(self) -> None:
        """Until a batch is there, and those that wait before it."""
        size = self._settings.trainer.batch_groups
        while len(self._ready) < size * (1 + self._arm.lag):
            wanted = size if self._arm.lag else size - len(self._ready)
            while len(self._running) < wanted:
                self._running.add(asyncio.create_task(self._group(self._source.next())))
            await self._turn()
            if not self._engine.step():
                await asyncio.sleep(MOMENT_S)
            await self._turn()
            for task in [task for task in self._running if task.done()]:
                self._running.discard(task)
                self._finished(*task.result())

    async def _turn(self) -> None:
        for _ in range(TURNS):
            await asyncio.sleep(0)

    async def _group(self, seed: Seed) -> Group:
        return seed, list(await asyncio.gather(*(self._member(seed, number) for number in range(seed.group_size))))

    async def _member(self, seed: Seed, number: int) -> Rollout:
        ask = seed.wanted[number]
        slot = seed.slot(ask, 0)
        derivation = self._source.derivations.get(seed.derivation or "")
        if derivation is not None and not derivation.needs_environment:
            made = await engine_answer(seed, self._engine)
        else:
            made = await self._source.environments.rollout(Dispatch(seed, ask, slot, None), self._engine)
        if isinstance(derivation, Scoring):
            made = with_facts(made, {"reward": derivation.score(seed, made.record)})
        return Rollout(slot, made)

    def _finished(self, seed: Seed, rollouts: list[Rollout]) -> None:
        rewards = [rollout.trajectory.reward or 0.0 for rollout in rollouts]
        self._made.rollouts += len(rollouts)
        self._made.tokens += sum(rollout.trajectory.response_tokens for rollout in rollouts)
        self._source.finished(seed, [rollout.trajectory for rollout in rollouts])
        if seed.derivation is None:
            self._recent[seed.env].append(fmean(rewards))
        if min(rewards) < max(rewards):
            self._ready.append((seed, rollouts))
        else:
            self._made.dropped += 1

    def _train(self) -> None:
        """The oldest batch."""
        self._made.steps += 1
        step, how = self._made.steps, self._settings.training
        size = self._settings.trainer.batch_groups
        groups = [self._drawn(*self._ready.popleft(), step) for _ in range(size)]
        table = samples_of([group for group in groups if len(group.members) > 1])
        for epoch, part in mini_batches(table, how.mini_batches, epochs=how.epochs, seed=(how.seed, step)):
            (share,) = rank_shares(part, how.max_tokens, epoch=epoch)
            self._stepping(step, share.packs, share.denominators)
        policy = Policy(0, step)
        self._history.publish(policy)
        self._engine.swap(self._stepping.model.state_dict(), policy)

    def _drawn(self, seed: Seed, rollouts: Sequence[Rollout], step: int) -> DrawnGroup:
        """The group as a trainer draws it, without members that are too old."""
        tokens = [MemberTokens.of(each.slot.member, 1, each.trajectory) for each in rollouts]
        verdict = judge(tokens, step, self._history, self._rule)
        self._made.masked += sum(m.response_tokens - m.trainable_tokens for m in verdict.members)
        members = tuple(
            DrawnMember(own.member, 1, Handle(0, 0), rollout.trajectory.reward or 0.0, own, rollout, each)
            for each, rollout, own in zip(tokens, rollouts, verdict.members, strict=True)
            if own.usable
        )
        final = GroupFinal(group=seed.group, group_size=seed.group_size, timeline=0, step=step, as_of=0)
        return DrawnGroup(seed.group, 0, final, members, 0, 0, Counter())


def arms(every: dict[str, float]) -> list[Arm]:
    """Everything on, each thing off, and on-policy."""
    whole = Arm("everything", every)
    without = [
        replace(whole, name=f"no {name}", chances={n: c for n, c in every.items() if n != name}) for name in every
    ]
    return [
        whole,
        *without,
        replace(whole, name="nothing derived", chances={}),
        replace(whole, name="no masks", masks=False),
        replace(whole, name="synchronous", lag=0),
    ]


def learned(settings: Settings, arm: Arm, seed: int, limit_s: float) -> Learning:
    """One arm with one seed, on one thread."""
    torch.set_num_threads(1)
    with asyncio.Runner(loop_factory=SkippingLoop) as runner:
        return runner.run(OneProcess(settings, arm, seed).run(limit_s))
