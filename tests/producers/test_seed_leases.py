"""Takes and leases (design/groups#leases): a seed is somebody's before its members start, and a rebalance repeats
nothing."""

from __future__ import annotations

import asyncio
import sys
import textwrap
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest
from msgspec.structs import replace

from rolloutlog.contract.events.rollouts import read_cancelled, read_taken
from rolloutlog.contract.events.seeds import Ask, Seed, seed_cancelled_event, seed_event
from rolloutlog.contract.partitions import partition_of
from rolloutlog.contract.settings import Settings
from rolloutlog.contract.vocabulary import EventType, SeedKind
from rolloutlog.contract.wire.claims import CLAIM, Claim
from rolloutlog.contract.wire.headers import CONTENT_TYPE
from rolloutlog.kafka.blobs.blob_store import BlobStore
from rolloutlog.kafka.client.connection import connection_of
from rolloutlog.kafka.write.writing import Writer, now_ms
from rolloutlog.producers.producer import RolloutProducer
from rolloutlog.producers.workers.seed_leases import SeedLease, SeedLeases
from tests.producers.log import emit, everything, seed_of, until

pytestmark = pytest.mark.broker
ROOT = Path(__file__).parents[2]
SESSION_MS = 1500


@asynccontextmanager
async def worker(settings: Settings, name: str, lease_s: float | None = None) -> AsyncGenerator[SeedLeases]:
    async with AsyncExitStack() as stack:
        producer = await stack.enter_async_context(RolloutProducer(settings, source=f"/workers/{name}"))
        leases = SeedLeases(producer, name, lease_s=lease_s, session_timeout_ms=SESSION_MS)
        yield await stack.enter_async_context(leases)


async def take(leases: SeedLeases, count: int = 1, within_s: float = 30.0) -> list[SeedLease]:
    found: list[SeedLease] = []
    deadline = asyncio.get_running_loop().time() + within_s
    while len(found) < count and asyncio.get_running_loop().time() < deadline:
        if (taken := await leases.next()) is not None:
            found.append(taken)
    return found


async def test_a_take_says_who_holds_the_seed_before_it_is_given(settings: Settings) -> None:
    seed = seed_of("g")
    await emit(settings, seed)
    async with worker(settings, "one") as leases:
        (held,) = await take(leases)
        (event,) = await everything(settings, kind=EventType.SEED_TAKEN)
        taken = read_taken(event)
        assert (taken.seed, taken.worker, taken.renewal, taken.lease_ms) == ("seed-g", "one", 0, 1500)
        assert event.partition == partition_of("g", 3)
        assert held.seed == seed
        assert held.partition == partition_of("g", 3)
        assert await leases.next() is None


async def test_a_lease_is_renewed_until_it_is_released(settings: Settings) -> None:
    """Renewed every third of a lease; a completed seed holds none."""

    async def renewals() -> list[int]:
        return [read_taken(event).renewal for event in await everything(settings, kind=EventType.SEED_TAKEN)]

    await emit(settings, seed_of("g"))
    async with worker(settings, "one", lease_s=0.3) as leases:
        (held,) = await take(leases)

        async def renewed() -> bool:
            return len(await renewals()) >= 4

        await until(renewed)
        leases.release(held)
        await asyncio.sleep(0)
        said = len(await renewals())
        await take(leases, within_s=0.5)
        assert len(await renewals()) <= said + 1  # one may have been on its way
    found = await renewals()
    assert found == list(range(len(found)))


async def test_a_rebalance_repeats_nothing(settings: Settings) -> None:
    """With commits on completion one join gave out 400 seeds again (design/groups#leases)."""
    seeds = [seed_of(f"g{number}") for number in range(30)]
    await emit(settings, *seeds)
    async with worker(settings, "one") as first:
        held = await take(first, 10)
        async with worker(settings, "two") as second:

            async def joined() -> bool:
                held.extend(await take(first, 1, within_s=0.2))
                held.extend(await take(second, 1, within_s=0.2))
                return bool(second._queue.owned) and len(second._queue.owned) < 3

            await until(joined)

            async def all_taken() -> bool:
                held.extend(await take(first, 1, within_s=0.2))
                held.extend(await take(second, 1, within_s=0.2))
                return len(held) >= len(seeds)

            await until(all_taken)
        held.extend(await take(first, 1, within_s=2))  # it owns all partitions again, and finds nothing on them
    assert Counter(each.seed.id for each in held) == Counter(seed.id for seed in seeds)
    taken = {
        (read_taken(event).seed, read_taken(event).worker)
        for event in await everything(settings, kind=EventType.SEED_TAKEN)
    }
    assert {name for name, _ in taken} == {seed.id for seed in seeds}


def test_a_worker_killed_between_take_and_commit_has_started_nothing(settings: Settings, tmp_path: Path) -> None:
    """SIGKILL after `seed.taken`, before the commit: the seed goes to another worker, and only there it starts."""
    program = f"""
        import asyncio
        from pathlib import Path
        from rolloutlog.contract.settings import Settings
        from rolloutlog.kafka.loop.work_queue import WorkQueue
        from rolloutlog.producers.producer import RolloutProducer
        from rolloutlog.producers.workers.seed_leases import SeedLeases

        async def hang(self, offered):
            print("taken, not committed", flush=True)
            await asyncio.sleep(3600)

        WorkQueue.commit_all = hang

        async def main():
            settings = Settings.model_validate_json({settings.model_dump_json(exclude_unset=True)!r})
            async with RolloutProducer(settings) as producer:
                async with SeedLeases(producer, "dies", session_timeout_ms={SESSION_MS}) as leases:
                    while True:
                        if await leases.next() is not None:
                            Path({str(tmp_path / "started")!r}).touch()

        asyncio.run(main())
    """

    async def body() -> None:
        await emit(settings, seed_of("g"))
        command = [sys.executable, "-c", textwrap.dedent(program)]
        dying = await asyncio.create_subprocess_exec(*command, cwd=ROOT, stdout=asyncio.subprocess.PIPE)
        try:
            assert dying.stdout is not None
            assert await dying.stdout.readline() == b"taken, not committed\n"
        finally:
            dying.kill()
            await dying.wait()
        async with worker(settings, "lives") as leases:
            (held,) = await take(leases)
            assert held.seed.id == "seed-g"
        workers = [read_taken(event).worker for event in await everything(settings, kind=EventType.SEED_TAKEN)]
        assert workers == ["dies", "lives"]
        assert not (tmp_path / "started").exists()

    asyncio.run(body())


async def test_a_seed_whose_partition_went_before_the_commit_is_forgotten(settings: Settings) -> None:
    """The lease that was said is enough for the buffer to ask again; starting it twice would be worse."""
    await emit(settings, seed_of("g"))
    async with worker(settings, "one") as first:
        queue = first._queue
        offered = None
        while offered is None:
            offered = await queue.next()
        async with worker(settings, "two") as second:
            both = [first, second]

            async def shared() -> bool:
                for leases in both:
                    await leases._queue.next(50)
                return all(leases._queue.owned for leases in both)

            await until(shared)
            assert not await queue.commit(offered)


async def test_a_cancelled_seed_is_dropped_wherever_its_partition_went(settings: Settings) -> None:
    origin, other = seed_of("g"), seed_of("other")
    again = Seed(
        id="again",
        kind=SeedKind.REROLL,
        group="g",
        group_size=2,
        env="sums",
        asks=[Ask(member=1, attempt=2)],
        origin_seed=origin.id,
        origin_offset=0,
    )
    await emit(settings, origin, other, again)
    async with worker(settings, "one") as leases:
        held = {each.seed.id: each for each in await take(leases, 3)}
        await leases.stop_taking()
        async with worker(settings, "two"), Writer(connection_of(settings)) as writer:
            await writer.send(
                seed_cancelled_event(
                    seed=origin.id, group="g", group_size=2, reason="attempts", source="/tests", now=now_ms()
                )
            )
            await writer.flush()
            await until(lambda: held[origin.id].cancelled.is_set() and held["again"].cancelled.is_set())
        assert not held[other.id].cancelled.is_set()


async def test_a_large_seed_is_read_from_the_blob_store(settings: Settings, tmp_path: Path) -> None:
    seed = seed_of("g", messages=[{"role": "user", "content": "x" * 300_000}])
    async with Writer(connection_of(settings), BlobStore(str(tmp_path))) as writer:
        await writer.send(seed_event(seed, source="/tests", now=now_ms()))
    stored = settings.model_copy(update={"blobs": str(tmp_path)})
    async with worker(stored, "one") as leases:
        (held,) = await take(leases)
        assert held.seed == seed


async def test_a_seed_that_cant_be_read_ends_its_group_and_holds_up_nobody(settings: Settings, tmp_path: Path) -> None:
    """A claim whose blob is gone, and a body that is no seed: their headers name the group."""
    store = BlobStore(str(tmp_path))
    gone = Claim(url=f"file://{tmp_path}/gone", size=3, digest="0" * 64, content_type="application/json")
    claimed = seed_event(seed_of("gone"), source="/tests", now=now_ms())
    headers = [(name, CLAIM.encode() if name == CONTENT_TYPE else text) for name, text in claimed.headers]
    broken = seed_event(seed_of("broken"), source="/tests", now=now_ms())
    bare = [(name, text) for name, text in broken.headers if name != "ce_digest"]
    async with Writer(connection_of(settings)) as writer:
        await writer.send(replace(claimed, headers=headers, value=gone.encode()))
        await writer.send(replace(broken, headers=bare, value=b"{}"))
        await writer.send(replace(broken, headers=[], value=b"junk"))
    await emit(settings, seed_of("good", group_size=1))
    await store.put(b"the store is there", "text/plain")
    async with worker(settings.model_copy(update={"blobs": str(tmp_path)}), "one") as leases:
        held: list[SeedLease] = []

        async def both_ended() -> bool:
            held.extend(await take(leases, within_s=0.5))
            return len(await everything(settings, kind=EventType.GROUP_CANCELLED)) == 2

        await until(both_ended)
        held.extend(await take(leases, 1 - len(held)))
        assert [each.seed.group for each in held] == ["good"]
    cancelled = await everything(settings, kind=EventType.GROUP_CANCELLED)
    assert {(event.headers.group, read_cancelled(event).members) for event in cancelled} == {
        ("gone", (0, 1)),
        ("broken", (0, 1)),
    }
