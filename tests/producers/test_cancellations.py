"""No cancellation of a seed that is held is missed, in whatever order seeds come to be held
(design/groups#cancellations)."""

from __future__ import annotations

import asyncio
import random

import pytest

from rolloutlog.contract.events.event import Outgoing
from rolloutlog.contract.events.seeds import Seed, seed_cancelled_event, seed_event
from rolloutlog.contract.partitions import partition_of
from rolloutlog.contract.settings import Settings
from rolloutlog.kafka.client.connection import connection_of
from rolloutlog.kafka.write.writing import Writer
from rolloutlog.producers.workers.cancellations import Cancellations
from rolloutlog.producers.workers.seed_leases import SeedLease
from tests.producers.log import seed_of, until

pytestmark = pytest.mark.broker
NAMES = [name for name in (f"g{number}" for number in range(200)) if partition_of(name, 3) == 0][:40]
HERE = partition_of(NAMES[0], 3)


def cancelled(seed: Seed) -> Outgoing:
    return seed_cancelled_event(
        seed=seed.id, group=seed.group, group_size=seed.group_size, reason="attempts", source="/tests", now=1
    )


async def write(settings: Settings, records: list[Outgoing]) -> None:
    async with Writer(connection_of(settings)) as writer:
        for record in records:
            await writer.send(record)


async def test_an_older_seed_is_heard_of_when_a_newer_one_is_taken(settings: Settings) -> None:
    """The log says: old, the end of old, new. Both are held before anything is read."""
    old, new = seed_of(NAMES[0]), seed_of(NAMES[1])
    said = [seed_event(old, source="/t", now=1), cancelled(old), seed_event(new, source="/t", now=1)]
    await write(settings, said)
    cancellations = Cancellations(connection_of(settings), 3)
    await cancellations.open()
    first, second = SeedLease(old, HERE, 0), SeedLease(new, HERE, 2)
    cancellations.watch(first)
    cancellations.watch(second)
    await until(first.cancelled.is_set)
    await write(settings, [cancelled(new)])
    await until(second.cancelled.is_set)
    await cancellations.close()


@pytest.mark.parametrize("chance", [1, 3])
async def test_any_order_of_takes_and_releases(settings: Settings, chance: int) -> None:
    """Half of the seeds are cancelled somewhere behind them; takes come in any order, and some are released."""
    rng = random.Random(chance)
    seeds = [seed_of(name) for name in NAMES]
    log = list(seeds)
    doomed = rng.sample(seeds, len(seeds) // 2)
    for seed in doomed:
        log.insert(rng.randint(log.index(seed) + 1, len(log)), seed)
    offsets = {seed.id: log.index(seed) for seed in seeds}
    said = [
        seed_event(seed, source="/t", now=1) if offsets[seed.id] == offset else cancelled(seed)
        for offset, seed in enumerate(log)
    ]
    await write(settings, said)
    cancellations = Cancellations(connection_of(settings), 3)
    await cancellations.open()
    takes = [SeedLease(seed, HERE, offsets[seed.id]) for seed in seeds]
    rng.shuffle(takes)
    kept = list[SeedLease]()
    for take in takes:
        cancellations.watch(take)
        kept.append(take)
        if rng.random() < 0.2:
            cancellations.forget(kept.pop(rng.randrange(len(kept))))
        if rng.random() < 0.2:
            await asyncio.sleep(rng.random() / 20)
    ended = [take for take in kept if take.seed in doomed]
    await until(lambda: all(take.cancelled.is_set() for take in ended))
    assert len(ended) > 5
    assert not any(take.cancelled.is_set() for take in kept if take not in ended)
    await cancellations.close()
