"""Large records by handle (design/trainer#payloads)."""

from __future__ import annotations

import asyncio
import random

import pytest

from rolloutlog.contract.errors import NotFound
from rolloutlog.contract.events.event import Event, Outgoing
from rolloutlog.contract.handles import Handle
from rolloutlog.contract.settings import Settings
from rolloutlog.contract.topics import Topic
from rolloutlog.contract.wire.headers import Headers
from rolloutlog.kafka.client.admin import create_topics
from rolloutlog.kafka.client.connection import connect, connection_of
from rolloutlog.kafka.read.payloads import PayloadReader
from rolloutlog.kafka.write.writing import Writer

SEEDED = random.Random(0)


def record(number: int) -> Outgoing:
    return Outgoing(Topic.ROLLOUTS, str(number).encode(), [], SEEDED.randbytes(20_000), number % 3)


def event(offset: int, size: int) -> Event:
    return Event(Topic.ROLLOUTS, 0, offset, 0, None, Headers([]), bytes(size))


@pytest.mark.broker
async def test_every_record_is_found_by_its_handle_in_any_order(settings: Settings) -> None:
    connection = await connect(settings)
    await create_topics(connection, settings)
    records = [record(number) for number in range(300)]
    async with Writer(connection) as writer:
        futures = [await writer.send(each) for each in records]
    handles = [Handle((await future).partition, (await future).offset, 20_000) for future in futures]
    expected = {handle: each.value for handle, each in zip(handles, records, strict=True)}
    SEEDED.shuffle(handles)
    async with PayloadReader(connection, cache_bytes=1 << 20) as payloads:
        together = await payloads.read_all(handles)
        assert {handle: read.value for handle, read in together.items()} == expected
        for handle in handles[:12]:
            assert (await payloads.read(handle)).value == expected[handle]
        several = await asyncio.gather(*(payloads.read(handle) for handle in handles[:12]))
        assert [read.value for read in several] == [expected[handle] for handle in handles[:12]]
        for missing in (Handle(0, 100_000), Handle(1, 100)):
            with pytest.raises(NotFound):
                await payloads.read(missing)
        assert (await payloads.read(handles[0])).value == expected[handles[0]]


def test_the_recently_used_are_kept_within_some_bytes() -> None:
    """No broker is asked: what is found is what was kept."""
    payloads = PayloadReader(connection_of(Settings(bootstrap_servers="nobody:1")), cache_bytes=3 * (1000 + 256))

    def kept(offset: int) -> bool:
        return (0, offset) in payloads._cache

    async def read(offset: int) -> bytes | None:
        return (await payloads.read(Handle(0, offset, 1000))).value

    for offset in range(3):
        payloads.keep(event(offset, 1000))
    assert asyncio.run(read(0)) == bytes(1000)
    payloads.keep(event(3, 1000))
    assert [kept(offset) for offset in range(4)] == [True, False, True, True]
    payloads.keep(event(9, 10_000))
    assert [kept(offset) for offset in (0, 2, 3, 9)] == [True, True, True, False]
