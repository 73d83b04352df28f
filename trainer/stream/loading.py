"""Values for a draw: they are decoded and checked off the event loop, and those that memory didn't keep are read again
by handle (design/trainer#payloads; design/trainer#columns).

Guarantees: after `load` every pick has all of its payloads, or it returns which members lost theirs, and why; what many
values say is found in threads, while the loop goes on to fetch. Leaves out: judging the group again, which the stream
does.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rolloutlog.contract.events.event import Event
from rolloutlog.contract.handles import Handle
from rolloutlog.contract.wire.rejection import Rejected
from rolloutlog.kafka.blobs.blob_store import BlobStore, resolve_body
from rolloutlog.kafka.read.payloads import PayloadReader
from rolloutlog.trainer.dispatch.pick import Pick
from rolloutlog.trainer.groups.announced import Announced
from rolloutlog.trainer.groups.arrivals import Arrival, arrivals
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


FEW = 32
"""So many values aren't worth a thread."""
LONG = 4 << 20
"""Bytes of values that are worth another thread, unless a reader has looked at them: hashing them and looking at their
columns frees the interpreter."""


async def read_together(records: Sequence[tuple[Announced, Event]]) -> list[Arrival]:
    """What these records say that were announced, as `arrivals` says it."""
    if len(records) <= FEW:
        return arrivals(records)
    size = sum(len(event.value or b"") for _, event in records if not event.is_sound)
    threads = max(1, min(size // LONG, os.cpu_count() or 1))
    parts = [records[number::threads] for number in range(threads)]
    found = await asyncio.gather(*(asyncio.to_thread(arrivals, part) for part in parts))
    return [found[number % threads][number // threads] for number in range(len(records))]


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
            found = arrived(event, await resolve_body(event, blobs))
            pending.keep(member, found.payload._replace(rollout=found.rollout))
        except Rejected as rejected:
            lost.append(Lost(pending, member, attempt, event, rejected))
    return lost


def _missing(pick: Pick) -> Iterable[tuple[Handle, tuple[PendingGroup, int, int]]]:
    for judged in pick.verdict.members:
        record = pick.pending.group.members[judged.member].record
        if judged.member not in pick.pending.payloads and record is not None:
            yield record.handle, (pick.pending, judged.member, judged.attempt)
