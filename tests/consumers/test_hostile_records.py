"""The buffer service and every look at the log over records that once ended them at every start
(design/buffer#hostile-json)."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from rolloutlog.broker import EmbeddedKafka
from rolloutlog.contract.events.event import Outgoing
from rolloutlog.contract.handles import Handle
from rolloutlog.contract.topics import Topic
from rolloutlog.contract.vocabulary import SeedKind, Status
from rolloutlog.kafka.client.connection import connection_of
from rolloutlog.kafka.write.writing import Writer
from tests.buffer.events_by_hand import fresh, rollout
from tests.buffer.partition_log import NOW
from tests.buffer.test_hostile_json import NOT_CHATS
from tests.cases.hostile import told
from tests.cases.raw import Raw
from tests.live.shell import Shell

pytestmark = pytest.mark.broker

CONFIG = """
topics = {partitions = 1}
buffer = {ratio = 9}
trainer = {batch_groups = 1, max_open = 64, overcommit = true}
"""
LOOKS = (
    ("status",),
    ("audit",),
    ("candidates",),
    ("seeds", "list"),
    ("groups",),
    ("dead-letters", "list"),
    ("tail", "rollouts"),
    ("tail", "seeds"),
    ("show", "rollouts/0/8"),
)
LAYOUTS = ("jsonl", "records", "parquet")


def outgoing(raw: Raw) -> Outgoing:
    return Outgoing(raw.topic, raw.key or b"", list(raw.headers), raw.value or b"", 0, NOW)


def altered(made: Outgoing, old: bytes, new: bytes, *headers: str) -> Outgoing:
    """The event with another value, without the headers that would disagree."""
    kept = [header for header in made.headers if header[0] not in ("ce_digest", *headers)]
    return Outgoing(made.topic, made.key, kept, made.value.replace(old, new), 0, NOW)


LONG = "L" * 1018
SAID: dict[str, list[Outgoing]] = {
    **{name: [outgoing(told(name, 0, changes))] for name, changes in NOT_CHATS.items()},
    "no environment": [rollout("no-env", member, env=None) for member in range(2)],
    "depth 2^63-1": [rollout("deepest", member, depth=2**63 - 1) for member in range(2)],
    "a seed of depth 2^63": [
        altered(fresh("depth", depth=5), b'"depth":5', b'"depth":9223372036854775808', "ce_depth"),
        rollout("depth", status=Status.ABORTED),
    ],
    "draw 2^64-1": [
        altered(
            fresh("draw", budget=77),
            b'"budget":77',
            b'"draw":{"number":18446744073709551615,"rollouts":0,"seeds":0,"group_events":0,"settings":""}',
        ),
    ],
    "an id whose .cancelled is too long": [
        altered(fresh("long", id="SHORT"), b'"SHORT"', f'"{LONG}"'.encode()),
        *(rollout("long", 0, attempt, status=Status.ABORTED, origin_seed=LONG) for attempt in (1, 2, 3)),
    ],
    "an empty environment": [
        altered(fresh("empty"), b'"env":"sums"', b'"env":""', "ce_env"),
        rollout("empty", status=Status.ABORTED),
    ],
    "an empty derivation": [
        altered(fresh("empty2", derivation="zz"), b'"zz"', b'""', "ce_derivation"),
        rollout("empty2", status=Status.ABORTED),
    ],
}
"""By what is wrong with them: seeds and records of them that once ended the service or a view, each at every start."""


def test_no_record_ends_the_service_nor_a_look_at_the_log(kafka_broker: EmbeddedKafka, tmp_path: Path) -> None:
    shell = Shell(kafka_broker, tmp_path, CONFIG)
    shell.run("topics", "create")
    written = [record for records in SAID.values() for record in records]
    written += [rollout("good", member) for member in range(2)]
    asyncio.run(write(shell, written))
    shell.run("buffer", "run", "--drain")
    letters = shell.lines("dead-letters", "list")
    derivations = [letter for letter in letters if letter["type"] == "derivation.rejected"]
    assert len(derivations) == len(NOT_CHATS)
    assert all(Handle(letter["partition"], letter["offset"]) for letter in derivations)
    shell.run("buffer", "run", "--drain")
    (status,) = shell.lines("status")
    assert status["skips"]["continue-tool-call: no-env"] == 2
    assert status["skips"]["continue-tool-call: too-deep"] == 2, "those of the greatest depth"
    for look in LOOKS:
        shell.run(*look)
        shell.run(*look, "--json")
    seeds = shell.lines("seeds", "list")
    assert any(seed["kind"] == SeedKind.CONTINUE for seed in seeds), "the good ones are derived from"
    (audit,) = shell.lines("audit")
    rejected = [x for x in letters if x["type"] == "record.rejected" and x["topic"] == Topic.ROLLOUTS]
    assert (audit["ok"], audit["rejected"]) == (True, len(rejected)), "a rejected derivation rejects no record"
    for layout in LAYOUTS:
        (exported,) = shell.lines("replay", "--format", layout, "--out", str(tmp_path / layout))
        assert exported["rollouts"] > 2


async def write(shell: Shell, records: list[Outgoing]) -> None:
    async with Writer(connection_of(shell.settings)) as writer:
        for record in records:
            await writer.send(record)
