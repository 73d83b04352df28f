"""A train step as it is written to the log: one transaction (design/trainer#steps).

Guarantees: what was trained, what was dropped or expired on the way, and the policy that came out are on the log
together or not at all, under the one transactional id `<ns>.trainer`; a second trainer fences the first. Leaves out:
checkpoints, whose event belongs into the same transaction.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass
from statistics import fmean
from typing import Any

from rolloutlog.contract.errors import ClientFailed, Fenced, RolloutlogError
from rolloutlog.contract.events.event import Outgoing
from rolloutlog.contract.events.group_events import final_event
from rolloutlog.contract.events.policy_versions import PublishedPolicy, policy_published, timeline_started
from rolloutlog.contract.policies import History, Policy
from rolloutlog.contract.vocabulary import Verdict
from rolloutlog.kafka.client.connection import Connection
from rolloutlog.kafka.write.batching import Written
from rolloutlog.kafka.write.transactions import TransactionalWriter
from rolloutlog.trainer.dispatch.batch import Batch
from rolloutlog.trainer.dispatch.unwritten_events import SOURCE, UnwrittenEvents

START_AGAIN = "start again: a new GroupStream goes on from what is on the log"


@dataclass(slots=True, frozen=True)
class StepReport:
    """What a step consumed, and what was dropped or expired since the step before it, by reason.

    `step` is None where each group has its own: `steps` has those that there are. `reward` is the mean over the kept
    members. Tokens of kept, surplus and dropped members lie side by side: a straggler policy that favours short ones
    shows.
    """

    step: int | None
    steps: list[int]
    groups: int
    members: int
    reward: float | None
    response_tokens: int
    trainable_tokens: int
    surplus_tokens: int
    verdicts: dict[str, int]
    dropped: dict[str, int]
    dropped_tokens: int
    expired: int
    short: bool

    @classmethod
    def of(cls, batch: Batch, unwritten: UnwrittenEvents) -> StepReport:
        """Count a batch and the unwritten events that go with it."""
        verdicts = [member.verdict for member in batch.members]
        rewards = [member.reward for member in batch.members]
        outcomes = [member for group in batch.groups for member in group.final.members]
        return cls(
            step=batch.step,
            steps=sorted({group.step for group in batch.groups}),
            groups=len(batch.groups),
            members=len(verdicts),
            reward=fmean(rewards) if rewards else None,
            response_tokens=sum(verdict.response_tokens for verdict in verdicts),
            trainable_tokens=batch.trainable_tokens,
            surplus_tokens=sum(m.response_tokens for m in outcomes if m.verdict is Verdict.SURPLUS),
            verdicts=dict(Counter(str(verdict.verdict) for verdict in verdicts)),
            dropped=dict(Counter(str(final.reason) for final in unwritten.dropped)),
            dropped_tokens=sum(member.response_tokens for final in unwritten.dropped for member in final.members),
            expired=len(unwritten.expired),
            short=batch.short,
        )

    def as_json(self) -> dict[str, Any]:
        """For `--json`."""
        return asdict(self)


def step_events(
    batch: Batch,
    unwritten: UnwrittenEvents,
    policy: Policy | None,
    *,
    run: str,
    now: int,
    uri: str | None,
    digest: str | None,
) -> list[Outgoing]:
    """The records of a step; the policy comes last."""
    trained = [final_event(group.final, source=SOURCE, now=now) for group in batch.groups]
    published = (
        [policy_published(policy, run=run, source=SOURCE, now=now, uri=uri, digest=digest)]
        if policy is not None
        else []
    )
    return [*unwritten.events(now), *trained, *published]


def first_events(history: History, *, run: str, now: int, uri: str | None, digest: str | None = None) -> list[Outgoing]:
    """A trainer's first start: its timeline and version 0 (design/trainer#timelines)."""
    timeline = history.next_timeline()
    return [
        timeline_started(timeline, None, 0, run=run, source=SOURCE, now=now),
        policy_published(Policy(timeline, 0), run=run, source=SOURCE, now=now, uri=uri, digest=digest),
    ]


def resumed_events(history: History, weights: PublishedPolicy, *, run: str, now: int) -> list[Outgoing]:
    """A trainer goes on from an older policy: the next timeline, and those weights as its first policy
    (design/trainer#timelines)."""
    timeline, (parent, step) = history.next_timeline(), weights.policy
    first = Policy(timeline, step)
    return [
        timeline_started(timeline, parent, step, run=run, source=SOURCE, now=now),
        policy_published(first, run=run, source=SOURCE, now=now, uri=weights.uri, digest=weights.digest),
    ]


class StepWriter:
    """Writes under the transactional id `<ns>.trainer`: `start` fences every earlier trainer of the namespace.

    After a write that failed nobody here knows whether it is on the log, so nothing more is written: a new start reads
    what is there.
    """

    def __init__(self, connection: Connection) -> None:
        self._namespace = connection.names.namespace
        self._writer = TransactionalWriter(connection, connection.names.transactional_id("trainer"))
        self._failure: RolloutlogError | None = None

    async def start(self) -> None:
        """Initialise the transactional id, which fences whoever had it."""
        await self._writer.start()

    async def close(self) -> None:
        """Close the producer; a transaction that is open is aborted."""
        await self._writer.close()

    async def write(self, events: list[Outgoing]) -> list[Written]:
        """All of them, or none; where they lie. Readers see them a moment later.

        Raises Fenced where another trainer has started since, ClientFailed after a failure.
        """
        if self._failure is not None:
            raise ClientFailed(f"the trainer's last write failed: {self._failure.message}", START_AGAIN)
        try:
            async with self._writer.transaction() as transaction:
                await transaction.send_all(events)
            return transaction.written
        except Fenced as fenced:
            self._failure = Fenced(
                f"another trainer has started in namespace {self._namespace}: this one stops, and nothing of its last "
                "step was written"
            )
            raise self._failure from fenced
        except RolloutlogError as error:
            self._failure = error
            raise
