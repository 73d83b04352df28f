"""The masks of all that was trained, made again and compared (design/groups#masks-again).

Guarantees: judged by the same rule as the trainer's, for the step and the timeline that the final event names, by the
settings whose digest it names; nothing is taken from its own word but these. Void events are passed over. Leaves out:
whether a record counts (`ledger`); groups whose records or settings can't be read are counted as unchecked, by reason.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

from rolloutlog.consumers.audit.small_topics import group_event_of
from rolloutlog.consumers.audit.violations import Violation
from rolloutlog.contract.events.event import Event
from rolloutlog.contract.events.group_events import GroupFinal, MemberOutcome
from rolloutlog.contract.events.validation import read_rollout
from rolloutlog.contract.handles import Handle
from rolloutlog.contract.ids import rollout_id
from rolloutlog.contract.policies import History
from rolloutlog.contract.record.rollout import Rollout
from rolloutlog.contract.roles import Role
from rolloutlog.contract.settings import Settings, TrainerSettings
from rolloutlog.contract.topics import Topic
from rolloutlog.contract.vocabulary import Verdict
from rolloutlog.contract.wire.rejection import Rejected
from rolloutlog.kafka.blobs.blob_store import store_of
from rolloutlog.kafka.client.connection import Connection, connect
from rolloutlog.kafka.read.policy_log import read_policy_log
from rolloutlog.kafka.read.reading import read_to_end
from rolloutlog.kafka.run_payloads import RunPayloads
from rolloutlog.kafka.run_record import RunRecord, read_run
from rolloutlog.kafka.source_log import source_of
from rolloutlog.trainer.staleness.rule import Rule, judge
from rolloutlog.trainer.staleness.verdicts import GroupVerdict, MemberTokens

KEPT = frozenset({Verdict.FRESH, Verdict.PARTLY, Verdict.EXEMPT, Verdict.UNKNOWN, Verdict.BASELINE})
"""Verdicts of members that a trained group kept."""
AT_ONCE = 16
"""Groups whose payloads are in memory together."""


@dataclass(slots=True)
class MaskCheck:
    """Groups whose masks were compared, those that couldn't be, by reason, and where a mask differs."""

    checked: int = 0
    unchecked: Counter[str] = field(default_factory=Counter[str])
    violations: list[Violation] = field(default_factory=list[Violation])

    def as_json(self) -> dict[str, Any]:
        """What `rolloutlog audit --masks --json` adds."""
        return {"checked": self.checked, "unchecked": dict(sorted(self.unchecked.items()))}


async def check_masks(settings: Settings, on_progress: Callable[[int, int], None] = lambda done, of: None) -> MaskCheck:
    """Make the masks of all trained groups again. Raises BrokerUnreachable, NotFound (no topics)."""
    connection = await connect(settings, Role.AUDIT)
    run = await read_run(connection)
    history = (await read_policy_log(connection, allow_open=True)).history
    source, found = source_of(connection, run) if run.trained_source else None, MaskCheck()
    theirs = None if source is None else (await read_policy_log(source.connection, allow_open=True)).history
    async with RunPayloads(connection, store_of(run.fit(settings)), source) as payloads:
        checker = _Checker(run, history if theirs is None else theirs, payloads, found, offline=theirs is not None)
        for partition in range(run.partitions):
            on_progress(partition, run.partitions)
            waiting: list[GroupFinal] = []
            async with aclosing(_trained(connection, history, partition, run.partitions)) as finals:
                async for final in finals:
                    waiting.append(final)
                    if len(waiting) == AT_ONCE:
                        await checker.check(waiting)
                        waiting.clear()
            await checker.check(waiting)
    on_progress(run.partitions, run.partitions)
    return found


async def _trained(
    connection: Connection, history: History, partition: int, partitions: int
) -> AsyncGenerator[GroupFinal]:
    """Live `group.trained` of a partition, as they come."""
    async with aclosing(read_to_end(connection, Topic.GROUP_EVENTS, partition, allow_open=True)) as batches:
        async for events in batches:
            for said in (group_event_of(event, partitions) for event in events):
                if isinstance(said, GroupFinal) and said.reason is None and history.is_live(said.timeline, said.step):
                    yield said


@dataclass(slots=True)
class _Checker:
    """Reads what finals name, and compares; `history` is of the policies that sampled."""

    run: RunRecord
    history: History
    payloads: RunPayloads
    found: MaskCheck
    offline: bool = False
    _settings: dict[str | None, TrainerSettings | None] = field(
        default_factory=dict[str | None, TrainerSettings | None]
    )

    async def check(self, finals: list[GroupFinal]) -> None:
        """Compare the masks of these groups."""
        events = await self.payloads.read_those_there(
            Handle.parse(member.handle) for final in finals for member in _kept(final) if member.handle
        )
        for final in finals:
            await self._check(final, events)

    async def _check(self, final: GroupFinal, events: Mapping[Handle, Event]) -> None:
        settings = self._settings_of(final)
        rollouts = await self._rollouts(final, events)
        if settings is None:
            self.found.unchecked["settings"] += 1
        elif isinstance(rollouts, str):
            self.found.unchecked[rollouts] += 1
        else:
            self.found.checked += 1
            seen = self.history if self.offline else self.history.as_of(final.timeline)
            verdict = masks_again(final, rollouts, settings, seen)
            if verdict.masks_digest != final.masks:
                self.found.violations.append(_difference(final, verdict))

    def _settings_of(self, final: GroupFinal) -> TrainerSettings | None:
        if final.settings not in self._settings:
            self._settings[final.settings] = self.run.trainer_settings(final.settings)
        return self._settings[final.settings]

    async def _rollouts(self, final: GroupFinal, events: Mapping[Handle, Event]) -> dict[int, Rollout] | str:
        """The records that it kept, by member; or why they can't be read."""
        read: dict[int, Rollout] = {}
        for member in _kept(final):
            handle = Handle.parse(member.handle) if member.handle else None
            event = None if handle is None else events.get(handle)
            if event is None or handle is None:
                return "deleted"
            try:
                read[member.member] = read_rollout(event, await self.payloads.body(handle, event))
            except Rejected:
                return "unreadable"
        return read


def _kept(final: GroupFinal) -> list[MemberOutcome]:
    return [member for member in final.members if member.verdict in KEPT]


def masks_again(
    final: GroupFinal, rollouts: Mapping[int, Rollout], settings: TrainerSettings, seen: History
) -> GroupVerdict:
    """The verdict on the kept members, as their final event's trainer judged them, who had `seen` these policies."""
    first = min(_kept(final), key=lambda member: Handle.parse(member.handle or "").offset, default=None)
    env = None if first is None else rollouts[first.member].slot.env
    rule = Rule.of(settings.staleness_of(env), settings.sync_period, live=seen.started, truncated=settings.truncated)
    tokens = [MemberTokens.of(m.member, m.attempt, rollouts[m.member].trajectory) for m in _kept(final)]
    return judge(tokens, final.judged_step, seen, rule)


def _difference(final: GroupFinal, verdict: GroupVerdict) -> Violation:
    """At the first member that trains another number of tokens, else at the first kept one."""
    again = {member.member: member.trainable_tokens for member in verdict.members}
    kept = _kept(final)
    at = next((m for m in kept if m.trainable_tokens != again[m.member]), kept[0])
    handle = Handle.parse(at.handle or "")
    rollout = rollout_id(final.group, at.member)
    return Violation("masks", final.group, rollout, handle.partition, handle.offset)
