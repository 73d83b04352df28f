"""Foreign bytes on every topic: no command and no service may end over them, and nothing of the run is lost.

Guarantees: what is asked of a topic that only we should write is the same as of those that everybody writes. The index
alone is different: its rows are a shard's state, so a foreign one is a typed error, never a guess.
"""

from __future__ import annotations

import asyncio
import itertools
from pathlib import Path

import pytest
from aiokafka.errors import KafkaError

from rolloutlog.broker import EmbeddedKafka
from rolloutlog.contract.errors import IndexMismatch
from rolloutlog.contract.settings import Settings
from rolloutlog.contract.topics import TOPICS, Topic
from rolloutlog.kafka.connection import connection_of
from rolloutlog.producers.importing.demo import demo_run
from tests.live.shell import Shell

pytestmark = pytest.mark.broker

Header = tuple[str, bytes]
CONFIG = "[topics]\npartitions = 2\n[trainer]\nbatch_groups = 1\nmax_open = 64\novercommit = true\n"
VALUES = (
    b"\xff\xfe garbage", b"", b"[]", b"{}", b"null", b"3", b'{"topic":"rollouts","partition":[1],"offset":{}}',
    b"\x01" * 40, b"\x09[]", b'\x09["a","b","c","d","e","f","g","h","i"]', b"[" * 2000,
    b'{"timeline":"x","version":-1}',
)  # fmt: skip
KEYS = (b"\xff\xfe", b"g", b"run", b"shard.state", b"settings/x")
LOOKS = (
    ("status",), ("audit",), ("candidates",), ("seeds", "list"), ("groups",), ("dead-letters", "list"), ("doctor",),
    ("topics", "create"),
)  # fmt: skip


def headers_of(topic: Topic) -> list[list[Header]]:
    """None, unreadable ones, and for each type of the topic sound ones and such of a future schema."""
    sound = {
        "ce_specversion": b"1.0", "ce_id": b"x", "ce_source": b"/trainer", "content-type": b"application/json",
        "ce_schemaversion": b"1", "ce_group": b"g", "ce_groupsize": b"2", "ce_member": b"0", "ce_seed": b"s",
    }  # fmt: skip
    made: list[list[Header]] = [[], [("ce_type", b"\xff"), ("ce_seedkind", b"\xff"), ("ce_group", b"\xff")]]
    for kind in TOPICS[topic].types:
        typed = sound | {"ce_type": kind.encode()}
        made += [list(typed.items()), list((typed | {"ce_schemaversion": b"99"}).items())]
    return made


async def scribble(settings: Settings, *topics: Topic) -> int:
    """Every value under every header and some key on every partition; how many the broker took."""
    producer = connection_of(settings).producer()
    await producer.start()
    taken = 0
    try:
        for topic in topics:
            keys = itertools.cycle(KEYS)
            name = connection_of(settings).names.topic(topic)
            for headers, value in itertools.product(headers_of(topic), VALUES):
                for partition in range(TOPICS[topic].partitions or settings.topics.partitions):
                    await producer.send(name, value=value, key=next(keys), headers=headers, partition=partition)
                    taken += 1
        await producer.flush()
    except KafkaError as error:
        raise AssertionError(f"{topics}: {error!r}") from error
    finally:
        await producer.stop()
    return taken


@pytest.fixture
def shell(kafka_broker: EmbeddedKafka, tmp_path: Path) -> Shell:
    made = Shell(kafka_broker, tmp_path, CONFIG)
    made.run("topics", "create")
    made.run("import", str(demo_run()))
    return made


def test_no_command_ends_over_foreign_records(shell: Shell) -> None:
    asyncio.run(scribble(shell.settings, *(topic for topic in Topic if topic is not Topic.ROLLOUT_INDEX)))
    shell.run("buffer", "run", "--drain")
    for look in LOOKS:
        shell.run(*look)
        shell.run(*look, "--json")
    assert shell.lines("train", "run", "--no-model", "--drain")[0]["groups"] == 3
    shell.run("buffer", "run", "--drain")
    shell.run("import", str(demo_run()))
    (audit,) = shell.lines("audit")
    assert (audit["ok"], audit["trained"], audit["dropped"]) == (True, 12, {"zero-variance": 4})
    assert audit["produced"] == audit["rejected"] + 16


@pytest.mark.parametrize("value", [b"\x01 another version", b"\x09[]", b"\x2a", VALUES[9]])
def test_a_foreign_row_of_the_index_is_a_typed_error(shell: Shell, value: bytes) -> None:
    """A corrupt or foreign shard row: nothing is written until somebody has looked (exit code 4)."""
    shell.run("buffer", "run", "--drain")

    async def write() -> None:
        producer = connection_of(shell.settings).producer()
        await producer.start()
        try:
            for kind in (b"shard.state", b"rollout.indexed"):
                headers = [("ce_type", kind), ("ce_id", b"x"), ("ce_schemaversion", b"1")]
                await producer.send_and_wait(
                    connection_of(shell.settings).names.topic(Topic.ROLLOUT_INDEX), value=value, key=b"shard.state",
                    headers=headers, partition=1,
                )  # fmt: skip
        finally:
            await producer.stop()

    asyncio.run(write())
    for command in (("buffer", "run", "--drain"), ("status",), ("candidates",), ("audit",)):
        shell.run(*command, code=IndexMismatch.exit_code)
    shell.run("tail", "rollout-index")
