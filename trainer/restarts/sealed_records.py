"""No trainer goes back to before what was counted for good and may be deleted (design/log#seals).

Guarantees: a resume that would make void what ended groups below a seal is refused, and the groups are named; nothing
is read for one that wouldn't. It is asked before a resume is written and once more after, as a collection looks for
resumes after it has sealed and before it deletes, so one of the two sees the other. Leaves out: records that retention
or hands have deleted (`rolloutlog.trainer.stream.opening`).
"""

from __future__ import annotations

from collections.abc import Mapping

from rolloutlog.contract.errors import RecordsDeleted
from rolloutlog.contract.events.audit_sealed import AuditSeal, read_seals
from rolloutlog.contract.events.group_events import GroupFinal, is_chunk
from rolloutlog.contract.handles import Handle
from rolloutlog.contract.policies import History, Policy
from rolloutlog.contract.topics import Topic
from rolloutlog.kafka.client.connection import HIDDEN_S, Connection
from rolloutlog.kafka.read.reading import read_to_end, settled
from rolloutlog.kafka.run_record import read_run
from rolloutlog.trainer.restarts.restoring import known_event

NAMED = 5


async def check_seals(connection: Connection, there: History) -> None:
    """Refuse a history in which a seal is void. Raises RecordsDeleted, OpenTransaction."""
    await settled(connection, [(Topic.RUN, 0)], HIDDEN_S)
    run = await read_run(connection)
    seals, _ = read_seals(run.facts, run.partitions)
    void = {number: seal for number, seal in seals.items() if not there.is_live(seal.timeline, seal.step)}
    if not void:
        return
    gone = await _gone(connection, void, there, run.partitions)
    latest = max((Policy(seal.timeline, seal.step) for seal in void.values()), key=lambda policy: policy.version)
    more = f" and {len(gone) - NAMED} more" if len(gone) > NAMED else ""
    raise RecordsDeleted(
        f"the records of what ended up to step {latest.version} of timeline {latest.timeline} are counted for good and "
        f"may be deleted: a resume from before it would want groups {', '.join(gone[:NAMED])}{more} again",
        f"resume from step {latest.version} or later; `rolloutlog gc --checkpoints` says how far back one can go",
    )


async def _gone(connection: Connection, seals: Mapping[int, AuditSeal], there: History, partitions: int) -> list[str]:
    """Groups whose final event would be void and of which a record lies below a seal."""
    found: dict[str, None] = {}
    for number, seal in seals.items():
        async for events in read_to_end(connection, Topic.GROUP_EVENTS, number, allow_open=True):
            for event in events:
                said = None if is_chunk(event) else known_event(event, partitions)
                if isinstance(said, GroupFinal) and not there.is_live(said.timeline, said.step):
                    found |= {said.group: None} if _lowest(said) < seal.rollouts else {}
    return [*found]


def _lowest(final: GroupFinal) -> int:
    """The lowest offset that it names."""
    offsets = [Handle.parse(member.handle).offset for member in final.members if member.handle is not None]
    return min(offsets, default=final.as_of)
