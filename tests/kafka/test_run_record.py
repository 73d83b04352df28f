"""The run's declaration: one per namespace, and every deployment agrees with it (design/log#run)."""

from __future__ import annotations

import asyncio
import time

import pytest
from msgspec.structs import replace

from rolloutlog.contract.errors import NotFound, RunMismatch, SettingsError, TopicMismatch
from rolloutlog.contract.events.event import Outgoing
from rolloutlog.contract.events.run import cursor_moved, trainer_recorded
from rolloutlog.contract.settings import Deadline, Settings
from rolloutlog.contract.topics import Topic
from rolloutlog.contract.trainer_settings import trainer_digest
from rolloutlog.kafka.client.admin import create_topics
from rolloutlog.kafka.client.connection import Connection, connect
from rolloutlog.kafka.run_record import agree, check_retention, declare, differences, read_run
from rolloutlog.kafka.write.transactions import TransactionalWriter
from rolloutlog.kafka.write.writing import Writer
from tests.producers.log import at_rest


def changed(settings: Settings, section: str, **fields: object) -> Settings:
    return settings.model_copy(update={section: getattr(settings, section).model_copy(update=fields)})


@pytest.mark.broker
async def test_a_run_is_declared_once(settings: Settings) -> None:
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


@pytest.mark.broker
async def test_other_settings_are_refused_by_name(settings: Settings) -> None:
    connection = await connect(settings)
    await create_topics(connection, settings)
    await declare(connection, settings)
    for ask in (agree, declare):
        with pytest.raises(RunMismatch, match=r"buffer\.salt = '0', this deployment has 'other'") as refusal:
            await ask(connection, changed(settings, "buffer", salt="other", lease_s=5.0))
        assert "the run has buffer.lease_s = 60.0, this deployment has 5.0" in refusal.value.message
        assert "for the life of a run" in refusal.value.message
        assert "topics create" not in refusal.value.hint, "it would refuse as well"
    with pytest.raises(TopicMismatch, match=r"max\.message\.bytes"):
        await agree(connection, changed(settings, "topics", max_message_bytes=1 << 20))


@pytest.mark.broker
async def test_the_trainers_settings_may_change_and_the_last_recorded_hold(settings: Settings) -> None:
    """A trainer that goes back to former settings records them again (design/log#settings)."""
    other = changed(settings, "trainer", batch_groups=4)

    def _unknown() -> Outgoing:
        name = f"settings/{trainer_digest({'max_passes': 0})}".encode()
        return replace(
            trainer_recorded(other.trainer, source="/t", now=0), key=name, value=b'{"trainer": {"max_passes": 0}}'
        )

    connection = await connect(settings)
    await create_topics(connection, settings)
    assert (await declare(connection, settings)).trainer_settings() == settings.trainer
    assert (await declare(connection, other)).trainer_settings() == settings.trainer, "it is declared once"
    assert await agree(connection, other) == await agree(connection, settings)
    async with Writer(connection) as writer:
        for trainer in (other.trainer, settings.trainer, other.trainer):
            await writer.send(trainer_recorded(trainer, source="/t", now=0))
            await writer.flush()
            record = await read_run(connection)
            assert record.trainer_settings() == record.trainer_settings(trainer.digest) == trainer
        await writer.send(_unknown())
    assert (await read_run(connection)).trainer_settings() is None, "nothing foreign stops a service"


@pytest.mark.broker
async def test_of_two_declarations_at_once_one_stands(settings: Settings) -> None:
    connection = await connect(settings)
    await create_topics(connection, settings)
    other = changed(settings, "buffer", salt="other")
    tries = [declare(connection, each) for each in (settings, other)]
    said = await asyncio.gather(*tries, return_exceptions=True)
    assert [type(one) for one in said if isinstance(one, BaseException)] in ([], [RunMismatch])
    record = await read_run(connection)
    stands = settings if record.declared["settings"] == settings.digest else other
    assert await agree(connection, stands) == record


@pytest.mark.broker
async def test_the_newest_cursor_is_read_back(settings: Settings) -> None:
    """A cursor moves in the transaction of what was written (design/eras#following)."""

    async def move(connection: Connection, line: int) -> None:
        async with (
            TransactionalWriter(connection, connection.names.transactional_id("feed")) as writer,
            writer.transaction() as transaction,
        ):
            now = int(time.time() * 1000)
            await transaction.send(cursor_moved("feed/math", {"line": line}, source="/feed", now=now))

    connection = await connect(settings)
    await create_topics(connection, settings)
    await move(connection, 1)
    await move(connection, 2)
    await at_rest(connection, Topic.RUN)
    assert (await read_run(connection)).cursors == {"feed/math": {"line": 2}}


def test_retention_below_what_is_still_needed_is_refused() -> None:
    """No retention below what a resume or a waiting group needs (design/log#retention)."""
    settings = Settings()
    check_retention(settings, checkpoint_interval_s=3600)
    short = changed(settings, "topics", retention_ms=600_000)
    check_retention(short)
    with pytest.raises(SettingsError, match="checkpoint interval"):
        check_retention(short, checkpoint_interval_s=3600)
    with pytest.raises(SettingsError, match=r"trainer\.straggler\.seconds"):
        check_retention(changed(short, "trainer", straggler=Deadline(seconds=700)))


def test_differences_name_the_path() -> None:
    assert list(differences({"a": {"b": 1, "c": 2}}, {"a": {"b": 1, "c": 3}, "d": 4})) == [
        ("a.c", 2, 3),
        ("d", None, 4),
    ]
