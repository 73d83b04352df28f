"""The groups as a trainer would see them now, for people (`rolloutlog groups`; design/trainer#view).

Guarantees: only reads, has no transactional id and fences nobody; every group of the log is shown once, ended ones as
they were drawn. Leaves out: payloads.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any

from rolloutlog.contract.events.group_events import GroupFinal
from rolloutlog.contract.policies import History, Policy
from rolloutlog.contract.roles import Role
from rolloutlog.contract.settings import Settings, TrainerSettings
from rolloutlog.contract.topics import Topic
from rolloutlog.kafka.client.connection import connect
from rolloutlog.kafka.read.policy_log import PolicyLog
from rolloutlog.kafka.run_record import RunRecord, read_run
from rolloutlog.trainer.dispatch.decision import DispatchPolicy
from rolloutlog.trainer.dispatch.group_row import group_row
from rolloutlog.trainer.groups.assembly import Assembly
from rolloutlog.trainer.restarts.group_history import GroupHistory, read_group_history
from rolloutlog.trainer.restarts.restoring import read_rejected
from rolloutlog.trainer.stream.intake import Budget, Intake
from rolloutlog.trainer.stream.opening import cut_below
from rolloutlog.trainer.stream.rollout_log import open_rollout_log
from rolloutlog.trainer.stream.starting import Start, first_step

NO_PAYLOADS = Budget(0, 0)


async def groups_view(settings: Settings, step: int | None = None, prefix: str = "") -> AsyncGenerator[dict[str, Any]]:
    """One JSON object per group whose id begins with `prefix`, by partition and arrival, judged for train step `step`.

    None: for the trainer's next step, or each group right after its newest version where policies are imported. The
    settings may differ from the run's: so one sees what another limit would do. Raises RunMismatch where no run is
    declared.
    """
    async with AsyncExitStack() as stack:
        connection = await connect(settings, Role.PEOPLE)
        run = await read_run(connection)
        count = run.partitions
        policies = await stack.enter_async_context(PolicyLog(connection))
        history = policies.history
        rollouts = await open_rollout_log(stack, connection, run.fit(settings), run, policies, patience_s=0.0)
        sampled_by, steps = rollouts.policies.history, not rollouts.offline or step is not None
        dispatch = DispatchPolicy(settings.trainer, sampled_by, asks=not rollouts.offline, steps=steps)
        recorded = _RecordedPolicies(run, settings.trainer, sampled_by)
        if history.is_empty and not rollouts.offline:  # what a trainer that starts now would publish first
            history.start(history.next_timeline(), None, 0)
            history.publish(Policy(history.timeline, 0))
        ended = await read_group_history(connection, history, range(count))
        rejected = await read_rejected(rollouts.connection, {})
        at = first_step(Start(step=step), history, ended.last_step)
        stops = rollouts.known
        for number in range(count):
            place = (Topic.ROLLOUTS, number)
            assembly = informed(rollouts.assembly(number, shown=ended.shown, prefix=prefix), ended)
            assembly.cut_below = cut_below(number, stops[place]) if stops[place].first else 0
            assemblies = {other: assembly if other == number else Assembly(other) for other in range(count)}
            async with rollouts.tail({number: 0}) as tail:
                intake = Intake(
                    tail=tail,
                    policies=rollouts.policies,
                    assemblies=assemblies,
                    blobs=rollouts.blobs,
                    budget=NO_PAYLOADS,
                    rejected_before=rejected,
                )
                while await intake.behind({number: stops[place].stable}):
                    await intake.read(500)
            groups = sorted(assemblies[number].groups.values(), key=lambda pending: pending.offset)
            for pending in groups:
                final = ended.finals.get(pending.id)
                yield group_row(
                    pending, dispatch if final is None else recorded.of(final), at, assemblies[number].time.now, final
                )


def informed(made: Assembly, recorded: GroupHistory) -> Assembly:
    """The assembly, once it knows what expired and what ended on a timeline that was left."""
    for group, expired in recorded.expired.items():
        for one in expired:
            made.endings.expire(group, one.member, one.attempt, 0)
    for group, as_of in recorded.void.items():
        made.endings.void(group, as_of, 0)
    return made


@dataclass(slots=True)
class _RecordedPolicies:
    """Dispatch policies of ended groups: by the settings that their final events name."""

    run: RunRecord
    given: TrainerSettings
    history: History
    _known: dict[str | None, DispatchPolicy] = field(default_factory=dict[str | None, DispatchPolicy])

    def of(self, final: GroupFinal) -> DispatchPolicy:
        """Its settings as they were recorded; an old one names none, and was judged by those of the run."""
        if final.settings not in self._known:
            found = None if final.settings is None else self.run.trainer_settings(final.settings)
            self._known[final.settings] = DispatchPolicy(
                found or self.run.trainer_settings() or self.given, self.history
            )
        return self._known[final.settings]
