"""The table of bad inputs, and claims, on a real broker: the offset moves on and nothing else is lost
(design/record#validation)."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from rolloutlog.buffer.group.member import MemberStatus
from rolloutlog.consumers.buffer_service import run_buffer
from rolloutlog.contract.ids import id_of
from rolloutlog.contract.record.value import SAFETENSORS
from rolloutlog.contract.settings import Settings
from rolloutlog.contract.topics import Topic
from rolloutlog.contract.wire.claims import CLAIM, Claim
from rolloutlog.trainer.stream.group_stream import GroupStream
from tests.cases.bad_inputs import BAD_INPUTS, BadInput
from tests.cases.claims import BAD_CLAIMS, BadClaim
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


async def test_the_table_of_bad_inputs(log: Log) -> None:
    rows, raws = table(Path(log.settings.blobs or ""))
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


async def test_a_claimed_body_is_drawn_like_any_other(log: Log) -> None:
    """Body before event; the size is above the topic's limit (design/log#claims)."""
    await log.bring(0)
    huge = [rollout(i, [0] * 1_100_000, group=id_of("huge")) for i in range(2)]
    await log.write(*huge)
    assert len(log.blob_files()) == 2
    async with GroupStream(log.settings) as stream:
        batch = await anext(stream.batches(drain=True))
        assert [m.verdict.response_tokens for m in batch.members] == [1_100_000] * 2
        assert all(m.rollout and m.rollout.trajectory == huge[m.member].trajectory for m in batch.members)
        await stream.trained(batch)


async def test_a_body_that_is_gone_at_the_draw_fails_its_member(log: Log) -> None:
    """The member becomes failed(rejected), its group is judged again, and the record gets a dead letter
    (design/groups#resolution)."""
    await log.bring(0)
    await log.write(*(rollout(i, [0] * 1_100_000, group=id_of("huge"), size=3) for i in range(2)))
    async with GroupStream(lenient(log.settings, buffer_bytes=1 << 20)) as stream:
        async for _ in stream.batches(drain=True):
            pytest.fail("the group is still open")
        for pending in stream._parts.intake.assemblies.values():
            for waiting in pending.groups.values():
                waiting.let_go()
        first, *_ = sorted(log.blob_files())
        first.unlink()
        await log.write(rollout(2, [0], group=id_of("huge"), size=3))
        batch = await anext(stream.batches(drain=True))
        assert len(list(batch.members)) == 2
        await stream.trained(batch)
    (final,) = await log.finals()
    assert sorted(m.status for m in final.members) == ["completed", "completed", "failed"]
    (letter,) = await log.read(Topic.DEAD_LETTERS)
    assert letter.headers.reason == "claim-missing"


async def test_a_store_that_isnt_set_here_is_the_one_that_the_run_was_declared_with(log: Log) -> None:
    await log.bring(0)
    await log.write(rollout(0, [0] * 1_100_000, group=id_of("huge"), size=1))
    without = log.settings.model_copy(update={"blobs": None})
    async with GroupStream(lenient(without)) as stream:
        batch = await anext(stream.batches(drain=True))
        assert len(list(batch.members)) == 1


async def test_claims_that_cant_be_met_stop_neither_buffer_nor_trainer(log: Log) -> None:
    """A claim's own fault is a dead letter, and what lies around it goes on (design/log#claims)."""
    bad = list(BAD_CLAIMS.items())
    (folder := Path(str(log.settings.blobs))).mkdir()

    def poison(number: int, one: BadClaim) -> Raw:
        url = one.url.replace("STORE", f"file://{folder}")
        claim = Claim(url=url, size=10, digest="ab" * 32, content_type=SAFETENSORS)
        raw = Raw.of(rollout(0, [0], group=id_of(f"bad-{number}"), size=1))
        return raw.holding(claim.encode(), CLAIM).but({"digest": b"ab" * 32})

    await log.bring(0)
    await log.write_raw([poison(number, one) for number, (_, one) in enumerate(bad)])
    await log.write(rollout(0, [0] * 1_100_000, group=id_of("good"), size=1))
    for name, one in bad:
        if not name.endswith("at its digest"):  # which all share
            with contextlib.suppress(FileExistsError):
                one.prepare(folder)
    buffer = await run_buffer(log.settings, drain=True)
    assert buffer.totals.events == len(bad) + 1
    letters = [event for event in await log.read(Topic.DEAD_LETTERS) if event.headers.type == "record.rejected"]
    assert len(letters) == len(bad)
    assert {event.headers.reason for event in letters} <= {"claim-missing", "claim-changed", "shape"}
    async with GroupStream(lenient(log.settings)) as stream:
        async for batch in stream.batches(drain=True):
            await stream.trained(batch)
    assert [final.group for final in await log.finals() if final.reason is None] == [id_of("good")]
