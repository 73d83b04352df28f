"""A run that draws on an ended namespace, on a broker: declared, folded, drawn, verified (design/buffer#source)."""

from __future__ import annotations

import asyncio
import secrets
import time
from pathlib import Path
from typing import Any

import orjson
import pytest
from aiokafka import TopicPartition
from aiokafka.admin import RecordsToDelete

from rolloutlog.buffer.derivations.protocol import AnchorPoint
from rolloutlog.buffer.derivations.recheck import Recheck
from rolloutlog.buffer.index.rollout_row import RolloutRow
from rolloutlog.buffer.index.rows import StateRow
from rolloutlog.consumers.audit.auditor import audit
from rolloutlog.consumers.exporting.export_service import export_rollouts
from rolloutlog.consumers.reindexing import reindex
from rolloutlog.consumers.replaying.freezing import freeze
from rolloutlog.consumers.replaying.horizons import Until
from rolloutlog.consumers.replaying.replay_buffer import ReplayBuffer
from rolloutlog.consumers.replaying.seed_check import check_seeds
from rolloutlog.consumers.replaying.source_choice import choose_source
from rolloutlog.consumers.retrying.letter import LetterFilter
from rolloutlog.consumers.retrying.outcome import Outcome
from rolloutlog.consumers.retrying.retry_service import retry
from rolloutlog.consumers.views.run_status import status
from rolloutlog.consumers.views.seed_view import candidate_rows
from rolloutlog.contract.errors import NotFound, RecordsDeleted, RunMismatch, SettingsError
from rolloutlog.contract.events.manifest_pinned import read_pins
from rolloutlog.contract.events.run import source_declared
from rolloutlog.contract.events.validation import read_rollout
from rolloutlog.contract.handles import Handle
from rolloutlog.contract.record.provenance import STATUS_OF
from rolloutlog.contract.record.slot import Slot
from rolloutlog.contract.record.trajectory import Trajectory
from rolloutlog.contract.settings import DerivationSettings, Settings
from rolloutlog.contract.topics import Topic
from rolloutlog.contract.vocabulary import EventType
from rolloutlog.kafka.client.admin import create_topics, delete_topics, with_admin
from rolloutlog.kafka.client.connection import Connection, connect
from rolloutlog.kafka.loop.index_reader import read_index
from rolloutlog.kafka.read.ends import ends
from rolloutlog.kafka.run_record import declare, read_run
from rolloutlog.producers.importing.import_service import import_runs
from tests.buffer.events_by_hand import final, rollout
from tests.buffer.partition_log import group_id
from tests.cases.raw import Raw
from tests.consumers.account import read_account
from tests.consumers.service_process import settings_for
from tests.consumers.test_buffer_service import OPTIONS, drain, groups, made, write, write_raw
from tests.kafka.crew import Crew
from tests.producers.log import everything
from tests.producers.sums import Sums
from tests.producers.test_worker import work

pytestmark = pytest.mark.broker

MODULE = "tests.consumers.service_process"


@pytest.fixture
def new(settings: Settings) -> Settings:
    """A run beside that of `settings`, with other settings."""
    found = settings_for(settings.bootstrap_servers or "", f"new-{secrets.token_hex(4)}")
    return found.model_copy(update={"buffer": found.buffer.model_copy(update={"ratio": 0.5, "salt": "other"})})


async def frozen(settings: Settings, folder: Path) -> Path:
    await freeze(settings, folder, Until())
    return folder


async def drawing(new: Settings, manifest: Path) -> Connection:
    """A run that draws on the namespace of a manifest."""
    connection = await connect(new)
    source = await choose_source(new, manifest)
    await create_topics(connection, new)
    await declare(connection, new, source)
    return connection


async def ended(settings: Settings, *names: str) -> Connection:
    """A run that recorded these groups, trained some, and is over."""
    connection = await made(settings)
    await write(connection, groups(*names))
    await write(connection, [final(name) for name in names[::2]])
    await drain(settings)
    return connection


async def test_a_run_draws_on_what_another_recorded(settings: Settings, new: Settings, tmp_path: Path) -> None:
    await ended(settings, *"abcdefgh")
    connection = await drawing(new, await frozen(settings, tmp_path / "old"))
    before = [row async for row in candidate_rows(new)]
    await drain(new)
    accounts = await read_account(connection, new)
    seeds = [seed for account in accounts for seed in account.seeds]
    assert 0 < len(seeds) <= 4, "half of the eight groups there, dealt to three partitions"
    assert all(seed.source and seed.source.where.namespace == settings.namespace for seed in seeds)
    assert len(before) > len(seeds)
    assert before[0]["source"].split(".")[0] in {group_id(name) for name in "abcdefgh"}
    assert {seed.id for seed in seeds}.isdisjoint(
        seed.id for account in await read_account(await connect(settings), settings) for seed in account.seeds
    )
    again = await check_seeds(new)
    assert (again.ok, again.told) == (True, [])
    counted = await audit(new)
    assert (counted.ok, counted.counts.produced) == (True, 0), "what was recorded there is counted there"
    found = await status(new)
    assert found["source"]["namespace"] == settings.namespace
    assert found["source"]["left"] == 0
    await drain(new)
    assert [account.seeds for account in await read_account(connection, new)] == [a.seeds for a in accounts]
    await write(connection, groups(*"xyz"))  # and it goes on as any run
    await drain(new)
    assert (await check_seeds(new)).ok
    assert (await audit(new)).ok


async def test_a_kill_in_the_middle_of_it(settings: Settings, tmp_path: Path) -> None:
    """Exactly once, and the same seeds and sources as where nothing was killed."""
    old = await made(settings)
    names = [f"g{number}" for number in range(900)]
    await write(old, [rollout(name, member) for name in names for member in range(2)])
    manifest = await frozen(settings, tmp_path / "old")
    first, second = (settings_for(settings.bootstrap_servers or "", f"new-{secrets.token_hex(4)}") for _ in range(2))
    whole, connection = await drawing(first, manifest), await drawing(second, manifest)
    await drain(first)
    with Crew(connection, 1, 3000, tmp_path / "log", MODULE) as crew:
        await begun(connection, second)
        crew.kill(0)
    left = [state.source for state in await states(connection, second) if state is not None]
    assert any(source is not None for source in left), "it was killed in the middle"
    await drain(second)
    for mine, theirs in zip(await read_account(connection, second), await read_account(whole, first), strict=True):
        places = [row.offset for row in mine.rows if isinstance(row, RolloutRow)]
        assert len(places) == len(set(places)), "each record has one row"
        assert sorted(places) == sorted(row.offset for row in theirs.rows if isinstance(row, RolloutRow))
        assert mine.restored().pool.sources.keys() == theirs.restored().pool.sources.keys()
        assert [seed.source for seed in mine.seeds] == [seed.source for seed in theirs.seeds]
    assert (await check_seeds(second)).ok


async def begun(connection: Connection, settings: Settings) -> None:
    """Until a part of the source is folded, and not all of it."""
    deadline = time.monotonic() + 60
    while not any(state and state.source is not None for state in await states(connection, settings)):
        assert time.monotonic() < deadline
        await asyncio.sleep(0.05)


async def states(connection: Connection, settings: Settings) -> list[StateRow | None]:
    """The newest shard row of each partition."""
    known = await ends(connection, [Topic.ROLLOUT_INDEX])
    places = {number: known[Topic.ROLLOUT_INDEX, number] for number in range(settings.topics.partitions)}
    return [index.state for index in (await read_index(connection, places)).values()]


async def test_a_source_is_declared_with_the_run_or_never(settings: Settings, new: Settings, tmp_path: Path) -> None:
    await ended(settings, *"ab")
    manifest = await frozen(settings, tmp_path / "old")
    source = await choose_source(new, manifest)
    connection = await drawing(new, manifest)
    assert (await declare(connection, new, source)).source == source
    pins, _ = read_pins((await read_run(await connect(settings))).facts)
    held = {pin.manifest: pin.lowest for pin in pins}[source.manifest]
    assert held == {number: 0 for number, end in enumerate(source.ends) if end}, "no collection there takes any of it"
    assert (await declare(connection, new)).source == source, "a later `topics create` needn't name it"
    with pytest.raises(RunMismatch, match=r"draws on a source with ends"):
        await declare(connection, new, source.model_copy(update={"ends": [end + 1 for end in source.ends]}))
    with pytest.raises(RunMismatch, match=r"declared without a source"):
        await declare(await connect(settings), settings, source)
    with pytest.raises(SettingsError, match=r"the source itself"):
        await choose_source(settings, manifest)
    topics = new.topics.model_copy(update={"partitions": 2})
    with pytest.raises(RunMismatch, match=r"has 3 partitions, .* would have 2"):
        await choose_source(new.model_copy(update={"topics": topics}), manifest)


async def test_garbage_about_sources_changes_nothing(settings: Settings, new: Settings, tmp_path: Path) -> None:
    await ended(settings, *"abcdefgh")
    source = await choose_source(new, await frozen(settings, tmp_path / "old"))
    connection = await drawing(new, tmp_path / "old")
    said = source_declared(source, source="/evil", now=0)
    evil = source.model_copy(update={"namespace": "evil"})
    bodies: list[Any] = [b"junk", b"[]", b"{}", orjson.dumps({**source.text, "ends": [-1]}), orjson.dumps(evil.text)]
    raw = [Raw(said.key, tuple(h for h in said.headers if h[0] != "ce_digest"), body, Topic.RUN) for body in bodies]
    other = source_declared(evil, source="/evil", now=0)
    raw.append(Raw(other.key, tuple(other.headers), other.value, Topic.RUN))
    await write_raw(connection, raw, 1)
    assert (await read_run(connection)).source == source
    assert EventType.SOURCE_DECLARED == "source.declared"
    await drain(new)
    assert any(account.seeds for account in await read_account(connection, new))


async def test_a_source_that_is_gone_before_it_is_folded_ends_the_service_with_its_name(
    settings: Settings, new: Settings, tmp_path: Path
) -> None:
    old = await ended(settings, *"abcdef")
    manifest = await frozen(settings, tmp_path / "old")
    await drawing(new, manifest)
    place = TopicPartition(old.names.topic(Topic.ROLLOUTS), 0)
    await with_admin(old, lambda admin: admin.delete_records({place: RecordsToDelete(before_offset=1)}))
    with pytest.raises(RecordsDeleted, match=rf"draws on {settings.namespace}\.rollouts/0 from 0"):
        await drain(new)
    with pytest.raises(RecordsDeleted, match=r"was frozen from 0"):
        await choose_source(new, manifest)
    await delete_topics(old)
    with pytest.raises(RecordsDeleted, match=r"the source of this run isn't there any more"):
        await drain(new)


async def test_a_source_that_is_gone_after_it_was_folded_is_passed_over(
    settings: Settings, new: Settings, tmp_path: Path
) -> None:
    old = await ended(settings, *"abcdef")
    new = new.model_copy(update={"buffer": new.buffer.model_copy(update={"cache_bytes": 0, "ratio": 0.0})})
    connection = await drawing(new, await frozen(settings, tmp_path / "old"))
    await drain(new)
    folder = await frozen(new, tmp_path / "new")
    again = await frozen(new, tmp_path / "again")
    assert [path.read_bytes() for path in sorted(again.iterdir())] == [
        path.read_bytes() for path in sorted(folder.iterdir())
    ], "the same cut gives the same bytes"
    with ReplayBuffer.open(folder, new) as buffer:
        item = await asyncio.to_thread(buffer.__getitem__, 0)
        assert item.candidate.handle.namespace == settings.namespace
        assert item.seed.source
        assert item.seed.source.handle == str(item.candidate.handle)
    await delete_topics(old)
    with ReplayBuffer.open(folder, new) as buffer, pytest.raises(NotFound, match=settings.namespace):
        await asyncio.to_thread(buffer.__getitem__, 0)
    assert [row async for row in candidate_rows(new)] == []
    assert sum(len(account.seeds) for account in await read_account(connection, new)) == 0


async def test_what_is_made_of_such_a_seed_lands_here_and_says_where_it_comes_from(
    settings: Settings, new: Settings, tmp_path: Path
) -> None:
    """It trains and counts here, and comes back from files as what it is."""
    await ended(settings, *"abcdefgh")
    connection = await drawing(new, await frozen(settings, tmp_path / "old"))
    await drain(new)
    seeds = [seed for account in await read_account(connection, new) for seed in account.seeds]
    members = sum(seed.group_size for seed in seeds)
    await work(new, Sums(), members)
    await drain(new)
    made_here = [event for event in await everything(new) if event.headers.type == EventType.ROLLOUT_COMPLETED]
    by_group = {seed.group: seed for seed in seeds}
    assert len(made_here) == members
    for event in made_here:
        seed, slot = by_group[event.headers.group or ""], Slot.of(event.headers)
        assert seed.source
        assert slot.source_handle
        assert slot.source_handle == Handle.parse(seed.source.handle)
        assert slot.source_handle.namespace == settings.namespace
        assert (slot.source_id, slot.depth) == (seed.source.rollout, 1)
        read_rollout(event)
    counted = await audit(new)
    assert (counted.ok, counted.counts.produced) == (True, members)
    await export_rollouts(new, tmp_path / "files", "jsonl")
    third = settings_for(settings.bootstrap_servers or "", f"third-{secrets.token_hex(4)}")
    await made(third)
    assert (await import_runs(third, [tmp_path / "files"])).ok
    again = [Slot.of(event.headers) for event in await everything(third) if event.headers.type in STATUS_OF]
    lineage = {(s.group, s.member, s.derivation, s.source_id, s.depth, s.seed_kind) for s in again}
    slots = [Slot.of(event.headers) for event in made_here]
    assert lineage == {(s.group, s.member, s.derivation, s.source_id, s.depth, s.seed_kind) for s in slots}


async def test_after_a_derivation_was_mended_its_dead_letters_are_made_good(
    settings: Settings, new: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By folding source and run anew: the letters stay, and say what helps."""
    await ended(settings, *"abcdefgh")
    recheck = DerivationSettings.model_validate({"name": "again", "derive": {"type": "recheck"}})
    new = new.model_copy(update={"buffer": new.buffer.model_copy(update={"derivations": [recheck]})})
    connection = await drawing(new, await frozen(settings, tmp_path / "old"))
    with monkeypatch.context() as broken:
        broken.setattr(Recheck, "anchors", classmethod(fails))
        await drain(new)
    assert [account.seeds for account in await read_account(connection, new)] == [[], [], []]
    found = await retry(new, LetterFilter(), dry_run=True)
    assert {one.outcome for one in found} == {Outcome.DERIVATION}
    assert all(one.letter.place.startswith(f"{settings.namespace}:rollouts/") for one in found)
    assert len(found) == 16
    await reindex(new, options=OPTIONS)
    await drain(new)
    seeds = [seed for account in await read_account(connection, new) for seed in account.seeds]
    assert {seed.derivation for seed in seeds} == {"again"}
    assert (await check_seeds(new)).ok
    assert (await audit(new)).ok


def fails(_: type[Recheck], __: Trajectory) -> list[AnchorPoint]:
    raise KeyError("a fault of its own")
