"""What a transaction of the trainer leaves for the next start: chunks of ended groups, and watermarks
(design/trainer#watermarks).

Guarantees: pure; made when the transaction is composed, and taken in once it is committed, so that a mark never runs
ahead of the log, nor ahead of its step: what was judged for a later one, of a batch that is drawn ahead, would be void
after a resume from here. An answer that was lost costs a chunk that is written again, nothing else. Leaves out:
writing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from rolloutlog.contract.events.event import Outgoing
from rolloutlog.contract.events.group_events import GroupFinal, MemberExpired, ended_event
from rolloutlog.contract.events.watermarks import PartitionMarks, Watermarks
from rolloutlog.contract.partitions import partition_of
from rolloutlog.trainer.dispatch.unwritten_events import SOURCE
from rolloutlog.trainer.groups.assembly import Assembly


@dataclass(slots=True, frozen=True)
class Closing:
    """What one transaction says of groups. `step` is the one that it closes, None where it closes none: then there are
    neither `chunks`, ids by partition, nor `marks`, which hold once it is committed. `groups` counts the others."""

    timeline: int
    step: int | None
    finals: Sequence[GroupFinal]
    expired: Sequence[MemberExpired]
    chunks: Mapping[int, Sequence[bytes]]
    marks: tuple[PartitionMarks, ...]
    groups: Mapping[str, int] = field(default_factory=dict[str, int])
    pass_number: int = 1

    @property
    def watermarks(self) -> Watermarks | None:
        """What `step.closed` says."""
        if self.step is None:
            return None
        return Watermarks(
            timeline=self.timeline,
            step=self.step,
            partitions=self.marks,
            groups=dict(self.groups),
            pass_number=self.pass_number,
        )

    def chunk_events(self, now: int) -> list[Outgoing]:
        """The chunks, which go behind all else that is said on `group-events`."""
        return [
            ended_event(
                names,
                self.marks[number].chunk,
                timeline=self.timeline,
                step=self.step or 0,
                source=SOURCE,
                now=now,
                partition=number,
                pass_number=self.pass_number,
            )
            for number, names in self.chunks.items()
        ]

    def committed(self, assemblies: Mapping[int, Assembly], last: Mapping[int, int]) -> None:
        """It is on the log; `last` says where its last event lies on each partition of `group-events`, as far as is
        known."""
        count = len(assemblies)
        for final in self.finals:
            assembly = assemblies[partition_of(final.group, count)]
            assembly.end(final.group)
            endings = assembly.endings
            endings.finish(final.group, final.step, endings.next_event, first=assembly.next_offset)
        for one in self.expired:
            endings = assemblies[partition_of(one.group, count)].endings
            endings.expire(one.group, one.member, one.attempt, endings.next_event)
        for number, assembly in assemblies.items():
            if self.step is not None:
                assembly.endings.close(self.step)
            if number in last:
                if names := self.chunks.get(number):
                    assembly.endings.take_chunk(names, last[number])
                assembly.endings.passed(last[number] + 1)


def closing_of(
    assemblies: Mapping[int, Assembly],
    finals: Iterable[GroupFinal],
    expired: Iterable[MemberExpired],
    *,
    timeline: int,
    step: int | None,
) -> Closing:
    """Of the final events and expired members of one transaction, which closes `step`."""
    said, count = [*finals], len(assemblies)
    chunks, marks = dict[int, Sequence[bytes]](), list[PartitionMarks]()
    if step is not None:
        ended = {number: {*assembly.endings.ended_by(step)} for number, assembly in assemblies.items()}
        for final in said:
            if final.step <= step:
                ended[partition_of(final.group, count)].add(final.group)
        for number, assembly in assemblies.items():
            marks.append(assembly.marks(ended[number]))
            if names := assembly.endings.chunk_with(sorted(ended[number])):
                chunks[number] = names
    number = max(assembly.pass_number for assembly in assemblies.values())
    return Closing(timeline, step, said, [*expired], chunks, tuple(marks), pass_number=number)
