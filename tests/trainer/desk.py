"""A partition of `rollouts` at hand: what is said is folded at once, as the trainer folds it.

Guarantees: offsets count up and timestamps are the test's own; records are what our producer writes. Leaves out: Kafka.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rolloutlog.contract.events.event import Event, Outgoing, annotation_event, cancelled_event, rollout_event
from rolloutlog.contract.policies import History, Policy
from rolloutlog.contract.record.rollout import Rollout
from rolloutlog.contract.settings import Straggler, TrainerSettings
from rolloutlog.contract.vocabulary import RunKind, Status
from rolloutlog.contract.wire.headers import Headers
from rolloutlog.trainer.dispatch.decision import Decision, DispatchPolicy
from rolloutlog.trainer.groups.assembly import Assembly
from rolloutlog.trainer.groups.pending_group import PendingGroup
from rolloutlog.trainer.groups.rollout_facts import fact_of

SEED = "5eed" * 8


def rollout(
    member: int = 0, versions: int | Sequence[int] = 4, *, reward: float | None = None, group: str = "g", size: int = 2,
    attempt: int = 1, seed: str | None = SEED, **slot: Any,
) -> Rollout:  # fmt: skip
    """A completed rollout with one response token per version; its reward is its member's number unless given."""
    steps = [versions] * 2 if isinstance(versions, int) else list(versions)
    return Rollout.flat(
        prompt_ids=[1, 2], response_ids=list(range(10, 10 + len(steps))), logprobs=[-0.5] * len(steps), versions=steps,
        reward=float(member) if reward is None else reward, group=group, member=member, group_size=size,
        attempt=attempt, slot={"origin_seed": seed, "origin_offset": None if seed is None else 0, **slot},
    )  # fmt: skip


def pending_reward(made: Rollout) -> Rollout:
    """The same without its reward."""
    made.trajectory.record["reward"] = None
    made.trajectory.record_text = b'{"reward": null, "nodes": [{"sampled": false}, {"sampled": true}]}'
    return made


def ended(made: Rollout, status: Status) -> Rollout:
    """The same with another end."""
    made.status = status
    return made


@dataclass
class Desk:
    """One partition, live: timeline 0 was started."""

    assembly: Assembly = field(default_factory=lambda: Assembly(0))
    now: int = 1_000_000

    def say(self, *facts: Rollout | Outgoing) -> None:
        """Put events on the partition, one millisecond apart."""
        for fact in facts:
            out = rollout_event(fact, source="/test", now=self.now) if isinstance(fact, Rollout) else fact
            event = Event(
                out.topic, 0, self.assembly.next_offset, self.now, out.key, Headers(out.headers), out.value
            )  # fmt: skip
            self.now += 1
            if self.assembly.wants(event):
                self.assembly.fold(event, fact_of(event, 1))
            else:
                self.assembly.pass_by(event)

    def annotate(self, made: Rollout, facts: Mapping[str, Any]) -> None:
        self.say(annotation_event(made.slot, facts, source="/test", now=self.now))

    def cancel(self, members: Iterable[int], *, group: str = "g", size: int = 2, kind: RunKind = RunKind.TRAIN) -> None:
        self.say(
            cancelled_event(
                group=group,
                group_size=size,
                members=list(members),
                reason="refused",
                source="/test",
                now=self.now,
                kind=kind,
            )
        )

    def pending(self, group: str = "g") -> PendingGroup:
        return self.assembly.groups[group]

    def decide(
        self, step: int | None = 5, history: History | None = None, *, group: str = "g", **settings: Any
    ) -> Decision:
        made = TrainerSettings.model_validate(settings)
        return DispatchPolicy(made, history or live()).decide(self.pending(group), step, self.assembly.time.now)


def live(newest: int = 20) -> History:
    """A trainer has started timeline 0 and published versions up to `newest`."""
    history = History()
    history.start(0, None, 0)
    for version in range(newest + 1):
        history.publish(Policy(0, version))
    return history


def staleness(**changes: Any) -> dict[str, Any]:
    """Settings with these staleness fields."""
    return {"staleness": changes}


def straggler(made: Straggler) -> dict[str, Any]:
    """Settings with this straggler policy."""
    return {"straggler": made}
