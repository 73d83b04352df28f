"""The table of bad inputs, and claims, on a real broker: the offset moves on and nothing else is lost (design 4)."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from rolloutlog.buffer.member import MemberStatus
from rolloutlog.contract.errors import BlobUnavailable
from rolloutlog.contract.ids import id_of
from rolloutlog.contract.settings import Settings
from rolloutlog.contract.topics import Topic
from rolloutlog.trainer.stream import GroupStream
from tests.cases.bad_inputs import BAD_INPUTS, BadInput
from tests.cases.raw import Raw
from tests.trainer.desk import rollout
from tests.trainer.log import Log

pytestmark = pytest.mark.broker


def lenient(settings: Settings, **more: int) -> Settings:
    """Groups of one survivor and of equal rewards train, so that every sound member of the table shows."""
    trainer = settings.trainer.model_dump() | {"min_survivors": 1, "drop_zero_variance": False} | more
    return Settings.model_validate(settings.model_dump() | {"trainer": trainer})


def table(store: Path) -> tuple[list[BadInput], list[Raw]]:
    """All rows that have records, and those records; their blobs are put into the store."""
    store.mkdir(parents=True, exist_ok=True)
    rows = [row for row in BAD_INPUTS if row.records()]
    for row in rows:
        for name, body in row.blobs.items():
            (store / name).write_bytes(body)
    return rows, [written.raw for row in rows for written in row.records(f"file://{store}")]


def test_the_table_of_bad_inputs(log: Log) -> None:
    rows, raws = table(Path(log.settings.blobs or ""))

    async def body() -> None:
        await log.bring(0, 1)
        await log.write_raw(raws)
        async with GroupStream(lenient(log.settings)) as stream:
            async for batch in stream.batches(drain=True):
                await stream.trained(batch)
            waiting = {id for a in stream._parts.intake.assemblies.values() for id in a.groups}
        finals = {final.group: final for final in await log.finals()}
        for row in rows:
            end = row.ends_for("trainer")
            if end == "open":
                assert row.group in waiting, row.name
                continue
            member = {m.member: m for m in finals[row.group].members}
            assert member[0].status == MemberStatus.COMPLETED, row.name
            assert member[1].status == end, row.name
            if end == "completed":
                assert member[1].attempt == row.attempt, row.name
        assert finals.keys() | waiting == {row.group for row in rows}
        letters = await log.read(Topic.DEAD_LETTERS)
        assert [event.headers.reason for event in letters] == ["policy-unknown"]

    asyncio.run(body())


def test_a_claimed_body_is_drawn_like_any_other(log: Log) -> None:
    """Design 3: body before event; the size is above the topic's limit."""

    async def body() -> None:
        await log.bring(0)
        huge = [rollout(i, [0] * 1_100_000, group=id_of("huge")) for i in range(2)]
        await log.write(*huge)
        assert len(log.blob_files()) == 2
        async with GroupStream(log.settings) as stream:
            (batch,) = [batch async for batch in stream.batches(drain=True)]
            assert [m.verdict.response_tokens for m in batch.members] == [1_100_000] * 2
            assert all(m.rollout and m.rollout.trajectory == huge[m.member].trajectory for m in batch.members)
            await stream.trained(batch)

    asyncio.run(body())


def test_a_body_that_is_gone_at_the_draw_fails_its_member(log: Log) -> None:
    """Design 4: the member becomes failed(rejected), its group is judged again, and the record gets a dead letter."""

    async def body() -> None:
        await log.bring(0)
        await log.write(*(rollout(i, [0] * 1_100_000, group=id_of("huge"), size=3) for i in range(2)))
        async with GroupStream(lenient(log.settings, buffer_bytes=1 << 20)) as stream:
            async for _ in stream.batches(drain=True):
                pytest.fail("the group is still open")
            for pending in stream._parts.intake.assemblies.values():
                for waiting in pending.groups.values():
                    waiting.payloads.clear()
            first, *_ = sorted(log.blob_files())
            first.unlink()
            await log.write(rollout(2, [0], group=id_of("huge"), size=3))
            (batch,) = [batch async for batch in stream.batches(drain=True)]
            assert len(list(batch.members)) == 2
            await stream.trained(batch)
        (final,) = await log.finals()
        assert sorted(m.status for m in final.members) == ["completed", "completed", "failed"]
        (letter,) = await log.read(Topic.DEAD_LETTERS)
        assert letter.headers.reason == "claim-missing"

    asyncio.run(body())


def test_a_claim_without_a_store_stops_the_trainer(log: Log) -> None:
    """A store that isn't configured rejects nothing: that is no fault of the record."""

    async def body() -> None:
        await log.bring(0)
        await log.write(rollout(0, [0] * 1_100_000, group=id_of("huge")))
        without = log.settings.model_copy(update={"blobs": None})
        with pytest.raises(BlobUnavailable, match="no blob store is set"):
            async with GroupStream(without) as stream:
                await anext(stream.batches(drain=True))

    asyncio.run(body())
