"""Foreign bytes on every topic: no command and no service may end over them, and nothing of the run is lost.

Guarantees: what is asked of a topic that only we should write is the same as of those that everybody writes. The index
alone is different: its rows are a shard's state, so a foreign one is a typed error, never a guess.
"""

from __future__ import annotations

import asyncio
import itertools
from pathlib import Path
from typing import Any

import pytest
from aiokafka.errors import KafkaError

from rolloutlog.broker import EmbeddedKafka
from rolloutlog.contract.errors import IndexMismatch
from rolloutlog.contract.events.seeds import Seed
from rolloutlog.contract.partitions import partition_of
from rolloutlog.contract.settings import Settings
from rolloutlog.contract.topics import TOPICS, Topic
from rolloutlog.contract.vocabulary import EventType, SeedKind
from rolloutlog.kafka.client.connection import connection_of
from rolloutlog.producers.importing.demo_records import demo_run
from rolloutlog.producers.policy_publisher import PolicyPublisher
from rolloutlog.producers.workers.rollout_worker import run_worker
from tests.live.game import Dice, Game
from tests.live.service import SESSION_MS
from tests.live.shell import Shell
from tests.producers.log import emit, everything, seed_of, until

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


def test_no_worker_ends_over_foreign_seeds(shell: Shell) -> None:
    """One that ended before it commits would end every worker after it, over the same record."""
    settings = shell.settings
    sound: dict[str, Any] = {"kind": SeedKind.FRESH, "group_size": 2, "env": "game"}
    bad = [
        Seed.model_construct(None, **{**sound, "id": name, "group": name, **odd})
        for name, odd in {
            "giant": {"group_size": 1 << 20}, "long": {"id": "i" * 100_000}, "env": {"env": "e" * 100_000},
            "train": {"group_train": 3}, "none": {"kind": SeedKind.RESUME, "prefix": "0/999999"},
        }.items()
    ]  # fmt: skip
    good = [seed_of(f"good-{i}", env="game", task={"act": "", "question": "?"}) for i in range(4)]

    async def body() -> None:
        async with PolicyPublisher(settings):
            await scribble(settings, Topic.SEEDS)
            await write_unchecked(settings, *bad)
            await emit(settings, *good)
        stop = asyncio.Event()
        worker = asyncio.create_task(run_worker(settings, Game(), Dice(), stop=stop, session_timeout_ms=SESSION_MS))

        async def made() -> bool:
            if worker.done():
                worker.result()
            done = await everything(settings, kind=EventType.ROLLOUT_COMPLETED)
            return {seed.group for seed in good} <= {event.headers.group for event in done}

        await until(made, 60)
        stop.set()
        assert set(await worker) == {"completed"}

    asyncio.run(body())


async def write_unchecked(settings: Settings, *seeds: Seed) -> None:
    """Seeds as another program may write them: the headers that a reader needs, and the body."""
    producer = connection_of(settings).producer()
    await producer.start()
    try:
        for seed in seeds:
            body = seed.encode()
            headers = {
                "ce_specversion": "1.0", "ce_id": "x", "ce_source": "/x", "content-type": "application/json",
                "ce_schemaversion": "1", "ce_type": "seed.emitted", "ce_group": seed.group,
                "ce_groupsize": str(seed.group_size),
            }  # fmt: skip
            await producer.send_and_wait(
                connection_of(settings).names.topic(Topic.SEEDS), value=body, key=seed.group.encode(),
                headers=[(name, text.encode()) for name, text in headers.items()],
                partition=partition_of(seed.group, settings.topics.partitions),
            )  # fmt: skip
    finally:
        await producer.stop()


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
