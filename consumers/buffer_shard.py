"""A shard of the buffer on the partition loop: what the pure shard can't do itself (design/buffer#rendering).

Guarantees: claimed bodies and payloads are read outside of transactions; one that can't be had is a dead letter or a
void draw, in whose place the next is drawn at once, never an end of the service. Leaves out: folding and choosing
(`rolloutlog.buffer.shard.shard`).
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from itertools import groupby

from rolloutlog.buffer.index.skip import Skip
from rolloutlog.buffer.shard.rendering import Void
from rolloutlog.buffer.shard.shard import Shard
from rolloutlog.consumers.fold_rows import recall_chunk, restore
from rolloutlog.consumers.source_folding import begin, fold_portion
from rolloutlog.contract.errors import NotFound, RunMismatch
from rolloutlog.contract.events.body import is_claimed
from rolloutlog.contract.events.event import Event, Outgoing
from rolloutlog.contract.events.validation import read_rollout
from rolloutlog.contract.handles import Handle
from rolloutlog.contract.record.trajectory import Trajectory
from rolloutlog.contract.settings import Settings
from rolloutlog.contract.topics import INPUT_TOPICS, Topic
from rolloutlog.contract.wire.rejection import Rejected
from rolloutlog.kafka.blobs.blob_store import BlobStore, resolve_body
from rolloutlog.kafka.loop.handler import Checkpoint, Inputs, Moment
from rolloutlog.kafka.loop.index_reader import index_row, shard_row
from rolloutlog.kafka.open_bounds import OpenBounds
from rolloutlog.kafka.run_payloads import RunPayloads
from rolloutlog.kafka.source_log import SourceLog

log = logging.getLogger(__name__)

NAMED = 20
"""Groups that a line names at most."""


class BufferShard:
    """One partition; `payloads` and `bounds` are shared by the shards of this member; without bounds it keeps to those
    of their own settings."""

    def __init__(
        self,
        partition: int,
        settings: Settings,
        payloads: RunPayloads,
        blobs: BlobStore | None,
        bounds: OpenBounds | None = None,
        source: SourceLog | None = None,
    ) -> None:
        self.shard = Shard.empty(partition, settings)
        self._bounds, self._source = bounds, source
        self._settings, self._payloads, self._blobs = settings, payloads, blobs

    def begin(self, first_row: int) -> None:
        """Start with nothing, before the source."""
        self.shard.fold.places.begin(first_row)
        begin(self.shard, self._source)

    def recall(self, row: Event) -> Checkpoint:
        """Where the newest shard row says that the inputs were read to. Raises RunMismatch, IndexMismatch."""
        state = shard_row(row)
        if state.settings != self._settings.digest:
            raise RunMismatch(
                f"the shard row {row.handle} was written under other settings than {self._settings.digest}"
            )
        self.shard.recall(state)
        inputs = {topic: state.next_offset(topic) for topic in INPUT_TOPICS}
        return Checkpoint(inputs, state.needed, state.chunk, state.reads)

    def recall_chunk(self, row: Event) -> int | None:
        """Take the ids of ended groups; where the chunk before lies. Raises IndexMismatch."""
        return recall_chunk(self.shard, row)

    def restore(self, rows: Sequence[Event]) -> None:
        """Fold rows of the index. Raises IndexMismatch."""
        restore(self.shard, [(event.offset, index_row(event)) for event in rows])

    def records_deleted(self, firsts: Inputs) -> None:
        """Name the open groups whose records were deleted: a trainer that starts now can't read them."""
        first = firsts[Topic.ROLLOUTS]
        gone = self.shard.fold.groups.with_records_below(first)
        if gone:
            log.warning(
                "rollouts/%d begins at %d: records of %d open group(s) were deleted, which are trained no more: %s%s",
                self.shard.fold.partition,
                first,
                len(gone),
                ", ".join(gone[:NAMED]),
                " ..." if gone[NAMED:] else "",
            )

    async def fold_source(self, moment: Moment) -> int | None:
        """Fold a portion of the source; its events, None where nothing of it is left."""
        return await fold_portion(self.shard, self._source, now=moment.now)

    async def fold(self, events: Sequence[Event], moment: Moment) -> None:
        """Fold events of the inputs; claimed bodies are read one by one."""
        for claimed, run in groupby(events, is_claimed):
            if not claimed:
                self.shard.read_all([*run], now=moment.now, clock=moment.clock)
                continue
            for event in run:
                body = await resolve_body(event, self._blobs)
                self.shard.read(event, body, now=moment.now, clock=moment.clock)

    async def flush(self, inputs: Inputs, moment: Moment) -> Sequence[Outgoing]:
        """What is to be written; renders what was drawn, reading the payloads that it needs first."""
        for topic, offset in inputs.items():
            self.shard.passed(topic, offset)
        if self._bounds is not None:
            self.shard.set_bounds(await self._bounds.now())
        while True:
            self.shard.draw(clock=moment.clock, caught_up=moment.caught_up)
            if missing := self.shard.missing():
                found = await self._payloads.read_those_there(missing)
                for handle in missing:
                    self.shard.supply(handle, await self._payload(handle, found.get(handle)))
            if not self.shard.render(now=moment.now):
                break
        return self.shard.flush(now=moment.now, clock=moment.clock)

    def committed(self, offsets: Sequence[int]) -> None:
        """What `flush` returned is on the log."""
        self.shard.committed(offsets)

    async def _payload(self, handle: Handle, event: Event | None) -> Trajectory | Void:
        if event is None:
            log.warning("the source at rollouts/%s is gone, so nothing is derived from it", handle)
            return Void(Skip.GONE, f"rollouts/{handle} isn't on the log any more")
        try:
            return read_rollout(event, await self._payloads.body(handle, event)).trajectory
        except NotFound as error:
            log.warning("the body of the source at rollouts/%s is gone, so nothing is derived of it: %s", handle, error)
            return Void(Skip.GONE, error.message)
        except Rejected as rejected:
            return Void(Skip.REJECTED, str(rejected))
