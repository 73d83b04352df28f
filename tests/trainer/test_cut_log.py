"""A partition whose beginning was deleted: nobody trains what is left of a group without a word
(design/trainer#cut-log)."""

from __future__ import annotations

import gc
import logging

import pytest
from aiokafka import TopicPartition
from aiokafka.admin.records_to_delete import RecordsToDelete

from rolloutlog.contract.errors import IndexMismatch, Starved
from rolloutlog.contract.settings import Settings
from rolloutlog.contract.topics import Topic
from rolloutlog.kafka.client.admin import with_admin
from rolloutlog.kafka.client.connection import Connection
from rolloutlog.trainer.stream.group_stream import GroupStream
from rolloutlog.trainer.stream.starting import Start
from tests.trainer.desk import rollout
from tests.trainer.log import Log


async def cut(connection: Connection, topic: Topic, offset: int, partition: int = 0) -> None:
    """Delete what lies below an offset of a partition."""
    place = TopicPartition(connection.names.topic(topic), partition)
    await with_admin(connection, lambda admin: admin.delete_records({place: RecordsToDelete(before_offset=offset)}))


@pytest.mark.broker
async def test_a_deadline_doesnt_make_up_for_records_that_were_deleted(
    settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    changed = settings.model_dump(mode="json")
    changed["topics"]["partitions"] = 1
    changed["trainer"] |= {
        "batch_groups": 1, "starve_s": 4, "straggler": {"type": "deadline", "seconds": 1, "k": 2},
    }  # fmt: skip
    log = Log(Settings.model_validate(changed))
    await log.create()
    await log.bring(0)
    await log.write(*(rollout(member, 0, group="torn", size=4) for member in range(4)))
    await log.write(*(rollout(member, 0, group="whole", size=4) for member in range(4)))
    await cut(log.connection, Topic.ROLLOUTS, 2)
    with caplog.at_level(logging.WARNING):
        async with GroupStream(log.settings) as stream:
            trained: list[str] = []
            with pytest.raises(Starved, match="the beginning of its partition was deleted"):
                async for batch in stream.batches():
                    trained += [one.id for one in batch]
                    await stream.trained(batch)
    assert trained == ["whole"]
    assert "rollouts/0 begins at offset 2" in caplog.text


@pytest.mark.broker
@pytest.mark.filterwarnings("error:Unclosed AIOKafka(Consumer|Producer)")
@pytest.mark.filterwarnings("error::pytest.PytestUnraisableExceptionWarning")
async def test_offsets_that_arent_on_the_log_are_refused_and_nothing_stays_open(log: Log) -> None:
    with pytest.raises(IndexMismatch, match="offset 99 of"):
        async with GroupStream(log.settings, Start(offsets={0: 99})):
            pass
    gc.collect()
