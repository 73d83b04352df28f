"""What a shard of the buffer still needs of its partition: its sources, its open groups, and its rows.

Guarantees: the shard is restored as a service restores it, which costs what is open. Leaves out: what the trainer and
frozen buffers need (`need`).
"""

from __future__ import annotations

from collections.abc import Iterator

from rolloutlog.buffer.folding.fold import Fold
from rolloutlog.buffer.group.open_group import OpenGroup
from rolloutlog.buffer.shard.shard import Shard
from rolloutlog.consumers.collecting.need import Need
from rolloutlog.consumers.fold_rows import recall_chunk, restore
from rolloutlog.contract.events.event import Event
from rolloutlog.contract.settings import Settings
from rolloutlog.contract.topics import Topic
from rolloutlog.kafka.loop.index_reader import Index


async def shard_needs(index: Index, settings: Settings) -> list[Need]:
    """By what nothing above is deleted; no seed and no row where no shard has run. Raises IndexMismatch."""
    if (state := index.state) is None:
        return [Need(topic, 0, "no buffer has read it") for topic in (Topic.SEEDS, Topic.ROLLOUT_INDEX)]
    shard, chunks = Shard.empty(index.partition, settings), list[int]()
    shard.recall(state)

    def read(event: Event) -> int | None:
        chunks.append(event.offset)
        return recall_chunk(shard, event)

    await index.read_chunks(read)
    async for rows in index.needed_rows():
        restore(shard, rows)
    found = [
        Need(Topic.ROLLOUTS, state.rollouts, "the buffer has read so far"),
        Need(Topic.SEEDS, state.seeds, "the buffer has read so far"),
        Need(Topic.ROLLOUT_INDEX, state.needed, "rows of open groups and of candidates"),
        *_of_fold(shard.fold),
    ]
    return found + [Need(Topic.ROLLOUT_INDEX, offset, "the ids of groups that ended") for offset in chunks[-1:]]


def _of_fold(fold: Fold) -> Iterator[Need]:
    own = next((place for place in fold.pool.sources if place >= 0), None)  # others lie in another namespace
    if own is not None:
        yield Need(Topic.ROLLOUTS, own, "the oldest source in the buffer")
    for name, opened in (fold.own_groups or fold.groups).opened.items():
        for offset in _records(opened):
            yield Need(Topic.ROLLOUTS, offset, f"the open group {name}")
        for emitted in opened.seeds.values():
            yield Need(Topic.SEEDS, emitted.offset, f"the open group {name}")


def _records(opened: OpenGroup) -> Iterator[int]:
    """The first records that are said of it, good or bad, and those that stand."""
    for kinship in (opened.kin.recorded, opened.kin.hinted):
        if kinship is not None:
            yield kinship.offset
    for member in opened.group.members.values():
        if member.record is not None:
            yield member.record.handle.offset
