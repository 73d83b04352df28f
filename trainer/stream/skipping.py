"""A start at the present end of the log: what is open there is dropped(skipped) (design/trainer#latest).

Guarantees: every train group that has a record or an origin seed below the ends of this moment gets its final event,
once, and holds no bound and no watermark from then on; one of which all lies above stays. One of which nothing but
annotations came has the size that the first of them says. A start that dies before it is through leaves the rest open,
which the next one skips. Leaves out: judging what it skips.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from typing import TypeVar

from rolloutlog.buffer.group.member import MemberStatus
from rolloutlog.contract.errors import BrokerUnreachable
from rolloutlog.contract.events.group_events import GroupFinal, MemberOutcome
from rolloutlog.contract.partitions import partition_of
from rolloutlog.contract.topics import Topic
from rolloutlog.contract.vocabulary import DropReason
from rolloutlog.contract.wire.headers import Headers
from rolloutlog.kafka.client.connection import HIDDEN_S
from rolloutlog.kafka.read.ends import Ends, Place
from rolloutlog.kafka.read.reading import settled
from rolloutlog.kafka.read.tail import SILENCE_S
from rolloutlog.trainer.dispatch.finals import final_of
from rolloutlog.trainer.groups.pending_group import PendingGroup
from rolloutlog.trainer.restarts.restoring import read_between
from rolloutlog.trainer.staleness.verdicts import GroupVerdict
from rolloutlog.trainer.stream.opening import Parts
from rolloutlog.trainer.stream.seed_reader import origin_of
from rolloutlog.trainer.stream.starvation import no_policy
from rolloutlog.trainer.stream.step_recorder import StepRecorder

AT_ONCE = 16384
"""Members that the final events of one transaction have, about; it must end before it times out."""
WAIT_MS = 500

T = TypeVar("T")


async def skip_open_groups(parts: Parts, recorder: StepRecorder) -> None:
    """Read up to the ends that the log has now, and drop what is open. Raises Starved where no policy is known, since
    then no record can be judged; OpenTransaction, Fenced and others."""
    if parts.history.is_empty:
        raise no_policy(parts.connection.names.namespace)
    numbers = [*parts.intake.assemblies]
    ends = await settled(parts.connection, [(t, n) for t in (Topic.ROLLOUTS, Topic.SEEDS) for n in numbers], HIDDEN_S)
    asked = await _asked(parts, ends)
    stops = {number: ends[Topic.ROLLOUTS, number].stable for number in numbers}
    await _read_to(parts, stops)
    opened, settings = [*_opened(parts, stops, asked)], parts.sampler.dispatch.settings.digest
    for block in _blocks((pending.size, pending) for pending in opened):
        await parts.intake.read_values(block)  # so that no final event names a record that is bad
        parts.sampler.unwritten.rejected += parts.intake.rejected_now
        parts.intake.rejected_now.clear()
        await _drop(parts, recorder, [_skipped(parts, pending, settings) for pending in block if pending.size])
    unseen = [*_unseen(parts, _annotated(parts, stops) | asked, settings)]
    for block in _blocks((final.group_size, final) for final in unseen):
        await _drop(parts, recorder, block)


async def _asked(parts: Parts, ends: Mapping[Place, Ends]) -> dict[str, int]:
    """The groups that have an origin seed below these ends, with their sizes; not those that ended below the mark."""
    assemblies, found = parts.intake.assemblies, dict[str, int]()
    stops = {place: end for place, end in ends.items() if place[0] is Topic.SEEDS}
    starts = {place: max(assemblies[place[1]].endings.next_seed, end.first) for place, end in stops.items()}
    async for events in read_between(parts.connection, starts, stops):
        for event in events:
            if (group := origin_of(event, len(assemblies))) is not None:
                found[group] = event.headers.require(Headers.group_size)
    return found


async def _read_to(parts: Parts, stops: Mapping[int, int]) -> None:
    """Fold what lies below these offsets of `rollouts`."""
    clock = asyncio.get_running_loop().time
    moved = clock()
    while await parts.intake.behind(stops):
        if await parts.intake.read(WAIT_MS):
            moved = clock()
        elif clock() - moved > SILENCE_S:
            raise BrokerUnreachable(f"nothing was read of rollouts for {SILENCE_S:.0f} s below {stops}")


def _opened(parts: Parts, stops: Mapping[int, int], asked: Mapping[str, int]) -> Iterator[PendingGroup]:
    """Groups that began below the ends, and whose size is known."""
    for assembly in parts.intake.assemblies.values():
        for pending in assembly.groups.values():
            if pending.size and (pending.offset < stops[assembly.partition] or pending.id in asked):
                yield pending


def _annotated(parts: Parts, stops: Mapping[int, int]) -> dict[str, int]:
    """Groups that began below the ends with an annotation and of which nothing else came, and what that says of their
    size."""
    return {
        pending.id: pending.said_size
        for assembly in parts.intake.assemblies.values()
        for pending in assembly.groups.values()
        if not pending.size and pending.said_size and pending.offset < stops[assembly.partition]
    }


def _skipped(parts: Parts, pending: PendingGroup, settings: str) -> GroupFinal:
    return final_of(
        pending,
        GroupVerdict(parts.step or 0, ()),
        timeline=parts.history.timeline,
        as_of=parts.intake.assemblies[pending.partition].next_offset,
        settings=settings,
        reason=DropReason.SKIPPED,
    )


def _unseen(parts: Parts, asked: Mapping[str, int], settings: str) -> Iterator[GroupFinal]:
    """Groups of these sizes of which no record came."""
    assemblies = parts.intake.assemblies
    for group, size in asked.items():
        assembly = assemblies[partition_of(group, len(assemblies))]
        if group not in assembly.endings:
            yield GroupFinal(
                group=group,
                group_size=size,
                timeline=parts.history.timeline,
                step=parts.step or 0,
                reason=DropReason.SKIPPED,
                as_of=assembly.next_offset,
                settings=settings,
                members=[MemberOutcome(member=i, attempt=0, status=MemberStatus.OPEN) for i in range(size)],
            )


def _blocks(sized: Iterable[tuple[int, T]]) -> Iterator[list[T]]:
    """What has those sizes, in portions of `AT_ONCE` or a little more."""
    block, members = list[T](), 0
    for size, item in sized:
        block.append(item)
        members += size
        if members >= AT_ONCE:
            yield block
            block, members = [], 0
    if block:
        yield block


async def _drop(parts: Parts, recorder: StepRecorder, finals: list[GroupFinal]) -> None:
    parts.sampler.unwritten.dropped += finals
    await recorder.write_notes()
