"""What was carried on the index of a broker: restored equals live, the audit and `replay --verify` hold
(design/buffer#carried)."""

from __future__ import annotations

import asyncio

from rolloutlog.buffer.folding.fold import Fold
from rolloutlog.buffer.index.round_rows import RoundRow
from rolloutlog.buffer.index.rows import CarriedRow
from rolloutlog.consumers.audit.auditor import audit
from rolloutlog.consumers.buffer_shard import BufferShard
from rolloutlog.consumers.replaying.seed_check import check_seeds
from rolloutlog.contract.settings import Settings
from rolloutlog.contract.topics import Topic
from rolloutlog.kafka.client.connection import Connection
from rolloutlog.kafka.loop.partition_loop import PartitionLoop
from rolloutlog.kafka.run_payloads import RunPayloads
from tests.buffer.events_by_hand import final, fresh, rollout, taken
from tests.buffer.partition_log import group_id
from tests.consumers.account import read_account
from tests.consumers.test_buffer_service import OPTIONS, groups, made, write

FAR = 8
"""Rows that a group may hold alone, in place of 65,536."""


async def drained(connection: Connection, settings: Settings) -> Fold:
    """The only shard, after it has read everything."""
    shards: dict[int, BufferShard] = {}
    async with RunPayloads(connection, None) as payloads:

        def factory(partition: int) -> BufferShard:
            shard = shards.setdefault(partition, BufferShard(partition, settings, payloads, None))
            shard.shard.fold.places.far = FAR
            shard.shard.fold.rounds.least = FAR
            return shard

        await asyncio.wait_for(PartitionLoop(connection, factory, OPTIONS).run(drain=True), 90)
    return shards[0].shard.fold


async def test_an_old_group_is_carried_and_whoever_reads_finds_everything_once(
    settings: Settings,
) -> None:
    topics = settings.topics.model_copy(update={"partitions": 1})
    settings = settings.model_copy(
        update={"topics": topics, "buffer": settings.buffer.model_copy(update={"capacity": 2})}
    )
    connection = await made(settings)
    await write(connection, [fresh("old"), taken("old"), rollout("old", 0, turns=0)])
    for name in "abcd":
        await write(connection, groups(name))
        read = (await drained(connection, settings)).next_offsets[Topic.ROLLOUTS]
        await write(connection, [final(name, read)])
    live = await drained(connection, settings)
    (account,) = await read_account(connection, settings)
    assert group_id("old") in {row.group for row in account.rows if isinstance(row, CarriedRow)}
    assert any(isinstance(row, RoundRow) for row in account.rows)
    restored = await drained(connection, settings)
    assert restored == live
    assert restored.groups.opened[group_id("old")].group.members[0].record is not None
    account.check(set())
    assert (await audit(settings)).ok is True
    check = await check_seeds(settings)
    assert (check.ok, check.told) == (True, [])
    assert check.found.total() > 0
