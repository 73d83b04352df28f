"""The run's declaration: one per namespace, and every deployment agrees with it (design 2 and 9.6)."""

from __future__ import annotations

import asyncio
import time

import pytest

from rolloutlog.contract.errors import NotFound, RunMismatch, SettingsError, TopicMismatch
from rolloutlog.contract.run_facts import cursor_moved
from rolloutlog.contract.settings import Settings
from rolloutlog.kafka.admin import create_topics
from rolloutlog.kafka.connection import Connection, connect
from rolloutlog.kafka.run_record import agree, check_retention, declare, differences, read_run
from rolloutlog.kafka.transactions import TransactionalWriter


def changed(settings: Settings, section: str, **fields: object) -> Settings:
    return settings.model_copy(update={section: getattr(settings, section).model_copy(update=fields)})


@pytest.mark.broker
def test_a_run_is_declared_once(settings: Settings) -> None:
    async def body() -> None:
        connection = await connect(settings)
        with pytest.raises(NotFound):
            await read_run(connection)
        await create_topics(connection, settings)
        with pytest.raises(RunMismatch, match="no run is declared"):
            await agree(connection, settings)
        declared = await declare(connection, settings)
        assert declared.partitions == 3
        assert declared.agreed == settings.agreed()
        assert await declare(connection, settings) == declared
        assert await agree(connection, settings) == declared
        assert declared.on(connection).max_message_bytes == settings.topics.max_message_bytes

    asyncio.run(body())


@pytest.mark.broker
def test_other_settings_are_refused_by_name(settings: Settings) -> None:
    async def body() -> None:
        connection = await connect(settings)
        await create_topics(connection, settings)
        await declare(connection, settings)
        with pytest.raises(RunMismatch, match=r"trainer\.batch_groups = 8, this deployment has 4"):
            await agree(connection, changed(settings, "trainer", batch_groups=4))
        with pytest.raises(RunMismatch, match=r"buffer\.salt"):
            await declare(connection, changed(settings, "buffer", salt="other"))
        with pytest.raises(TopicMismatch, match=r"max\.message\.bytes"):
            await agree(connection, changed(settings, "topics", max_message_bytes=1 << 20))

    asyncio.run(body())


@pytest.mark.broker
def test_of_two_declarations_at_once_one_stands(settings: Settings) -> None:
    async def body() -> None:
        connection = await connect(settings)
        await create_topics(connection, settings)
        other = changed(settings, "trainer", batch_groups=4)
        tries = [declare(connection, each) for each in (settings, other)]
        said = await asyncio.gather(*tries, return_exceptions=True)
        assert [type(one) for one in said if isinstance(one, BaseException)] in ([], [RunMismatch])
        record = await read_run(connection)
        stands = settings if record.declared["settings"] == settings.digest else other
        assert await agree(connection, stands) == record

    asyncio.run(body())


@pytest.mark.broker
def test_the_newest_cursor_is_read_back(settings: Settings) -> None:
    """A cursor moves in the transaction of what was written (design 2)."""

    async def move(connection: Connection, line: int) -> None:
        async with (
            TransactionalWriter(connection, connection.names.transactional_id("feed")) as writer,
            writer.transaction() as transaction,
        ):
            now = int(time.time() * 1000)
            await transaction.send(cursor_moved("feed/math", {"line": line}, source="/feed", now=now))

    async def body() -> None:
        connection = await connect(settings)
        await create_topics(connection, settings)
        await move(connection, 1)
        await move(connection, 2)
        assert (await read_run(connection)).cursors == {"feed/math": {"line": 2}}

    asyncio.run(body())


def test_retention_below_what_is_still_needed_is_refused() -> None:
    """Design 9.6."""
    settings = Settings()
    check_retention(settings, checkpoint_interval_s=3600)
    short = changed(settings, "topics", retention_ms=600_000)
    check_retention(short)
    with pytest.raises(SettingsError, match="checkpoint interval"):
        check_retention(short, checkpoint_interval_s=3600)


def test_differences_name_the_path() -> None:
    assert list(differences({"a": {"b": 1, "c": 2}}, {"a": {"b": 1, "c": 3}, "d": 4})) == [
        ("a.c", 2, 3),
        ("d", None, 4),
    ]
