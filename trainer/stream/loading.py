"""Payloads of what was drawn: those that memory didn't keep are read again by handle (design/trainer#payloads).

Guarantees: after `load` every pick has all of its payloads, or it returns which members lost theirs, and why.
Leaves out: judging the group again, which the stream does.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from rolloutlog.contract.events.event import Event
from rolloutlog.contract.handles import Handle
from rolloutlog.contract.wire.rejection import Rejected
from rolloutlog.kafka.blobs.blob_store import BlobStore, resolve_body
from rolloutlog.kafka.read.payloads import PayloadReader
from rolloutlog.trainer.dispatch.sampler import Pick
from rolloutlog.trainer.groups.pending_group import PendingGroup
from rolloutlog.trainer.groups.rollout_facts import arrived


@dataclass(slots=True, frozen=True)
class Lost:
    """A member whose payload failed when it was drawn. `event` None: the record itself is gone from the log."""

    pending: PendingGroup
    member: int
    attempt: int
    event: Event | None
    rejected: Rejected | None


async def load(picks: Iterable[Pick], payloads: PayloadReader, blobs: BlobStore | None) -> list[Lost]:
    """Fill in what isn't in memory; what couldn't be read."""
    wanted = {handle: where for pick in picks for handle, where in _missing(pick)}
    events = await payloads.read_those_there(wanted)
    lost: list[Lost] = []
    for handle, (pending, member, attempt) in wanted.items():
        event = events.get(handle)
        if event is None:
            lost.append(Lost(pending, member, attempt, None, None))
            continue
        try:
            pending.keep(member, arrived(event, await resolve_body(event, blobs)).payload)
        except Rejected as rejected:
            lost.append(Lost(pending, member, attempt, event, rejected))
    return lost


def _missing(pick: Pick) -> Iterable[tuple[Handle, tuple[PendingGroup, int, int]]]:
    for judged in pick.verdict.members:
        record = pick.pending.group.members[judged.member].record
        if judged.member not in pick.pending.payloads and record is not None:
            yield record.handle, (pick.pending, judged.member, judged.attempt)
