"""A namespace off the log and onto another: equal rollouts, groups and lineage, in both layouts
(design/eras#export)."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import orjson
import pytest

from rolloutlog.consumers.exporting.export_service import Format, export_rollouts
from rolloutlog.contract.events.event import Event
from rolloutlog.contract.events.rollouts import read_annotation, read_cancelled
from rolloutlog.contract.events.validation import read_headers, read_rollout
from rolloutlog.contract.ids import digest_of
from rolloutlog.contract.policies import Policy
from rolloutlog.contract.record.provenance import STATUS_OF
from rolloutlog.contract.record.slot import Slot
from rolloutlog.contract.record.trajectory import Trajectory
from rolloutlog.contract.settings import Settings
from rolloutlog.contract.topics import Topic
from rolloutlog.contract.vocabulary import EventType, RunKind, SeedKind, Status
from rolloutlog.kafka.client.connection import connect
from rolloutlog.kafka.read.reading import read_to_end
from rolloutlog.producers.endings import with_facts
from rolloutlog.producers.importing.demo_records import demo_run
from rolloutlog.producers.importing.import_service import import_runs
from rolloutlog.producers.importing.placing.known import read_policies
from rolloutlog.producers.producer import RolloutProducer
from tests.cases.rollouts import sound, sound_nodes

pytestmark = pytest.mark.broker

Fill = Callable[..., Settings]
each_layout = pytest.mark.parametrize("layout", ["jsonl", "records"])


@dataclass(slots=True)
class Kept:
    """What stands of one member: all that has a meaning on any log."""

    slot: Slot
    status: Status
    value: str
    step: int | None
    notes: dict[str, Any] = field(default_factory=dict[str, Any])


@dataclass(slots=True)
class Log:
    """Members that have a result, sizes of groups, cancelled members; policies: known, and named by tokens."""

    members: dict[tuple[str, int], Kept] = field(default_factory=dict[tuple[str, int], Kept])
    sizes: dict[str, int] = field(default_factory=dict[str, int])
    cancelled: set[tuple[str, int]] = field(default_factory=set[tuple[str, int]])
    policies: set[Policy] = field(default_factory=set[Policy])
    named: set[Policy] = field(default_factory=set[Policy])

    def fold(self, event: Event, kind: EventType) -> None:
        headers = event.headers
        group, size = headers.require(headers.__class__.group), headers.require(headers.__class__.group_size)
        self.sizes[group] = size
        if kind is EventType.GROUP_CANCELLED:
            self.cancelled |= {(group, member) for member in read_cancelled(event).members}
        elif kind is EventType.ROLLOUT_ANNOTATED:
            slot = Slot.of(headers)
            there = self.members.get((slot.group, slot.member))
            if there is not None:
                there.notes |= read_annotation(event)
        elif kind in STATUS_OF and kind is not EventType.ROLLOUT_ABORTED:
            rollout = read_rollout(event)
            slot = rollout.slot
            kept = slot._replace(
                attempt=1,
                trace=slot.trace or slot.rollout,
                source_file=None,
                origin_seed=None,
                origin_offset=None,
                source_handle=None,
            )
            self.members[slot.group, slot.member] = Kept(
                kept, rollout.status, digest_of(event.value or b""), headers.step
            )


def on_the_log(settings: Settings) -> Log:
    async def body() -> Log:
        connection, log = await connect(settings), Log()
        for number in range(settings.topics.partitions):
            async for events in read_to_end(connection, Topic.ROLLOUTS, number):
                for event in events:
                    log.fold(event, read_headers(event, settings.topics.partitions))
        log.policies = set((await read_policies(connection)).imported)
        return log

    return asyncio.run(body())


def exported(settings: Settings, folder: Path, layout: Format) -> Path:
    asyncio.run(export_rollouts(settings, folder, layout))
    return folder


def agents() -> Trajectory:
    """Two agents whose turns alternate, with rewards of their own."""
    first, second = sound_nodes(), sound_nodes()
    nodes = [first[0], replace(second[0], agent=1), first[1], replace(second[1], agent=1, parent=1)]
    record = {"agents": [{"name": "solver"}, {"name": "judge", "trainable": False, "reward": 0.5}], "reward": 1.0}
    return Trajectory.build(nodes, record)


async def publish(settings: Settings) -> None:
    """What workers write: each member ended in another way, and two groups were made of one source."""
    async with RolloutProducer(settings) as producer:
        source = sound("source", 0, run=None)
        await producer.publish(source)
        await producer.publish(sound("source", 1, run=None, reward=None))  # pending
        for group, depth in (("once", 1), ("twice", 2)):
            seed = {"derivation": "continue", "seed_kind": SeedKind.CONTINUE, "source_id": "source.0", "depth": depth}
            for member in range(2):
                made = sound(group, member, reward=float(member), **seed)
                facts = {"task": {"idx": 3}, "source_reward": 1.0, "source_step": None}
                await producer.publish(replace(made, trajectory=with_facts(made.trajectory, facts)))
        many = Slot(group="many", group_size=5, group_train=3, member=0, env="a/b", dispatch_step=4)
        await producer.publish(replace(source, slot=many, trajectory=agents()))
        await producer.fail(many._replace(member=1), TimeoutError("gone"), source.trajectory)
        await producer.abort(many._replace(member=2), source.trajectory)
        await producer.publish(replace(source, slot=many._replace(member=2, attempt=2)))
        await producer.publish(replace(sound("many", reward=None), slot=many._replace(member=3)))
        await producer.annotate(
            many._replace(member=3), {"reward": 0.25, "judge": {"why": ["long"]}, "advantage": -1.0}
        )
        await producer.abort(many._replace(member=4), source.trajectory)  # has no result: it stays on its log
        await producer.publish(sound("eval", 0, kind=RunKind.EVAL, group_size=1))


@pytest.fixture
def mixed(filled: Fill, samples: Path) -> Settings:
    """Every era, an eval whose episodes name no group, and what workers wrote, in one namespace."""
    eras = [samples / name for name in ("july2026", "e3", "v0", "sept2026", "eval")]
    settings = filled(demo_run(), *eras)
    asyncio.run(publish(settings))
    return settings


@each_layout
def test_a_mixed_namespace_comes_back_whole(layout: Format, mixed: Settings, filled: Fill, tmp_path: Path) -> None:
    before = on_the_log(mixed)
    after = on_the_log(filled(exported(mixed, tmp_path / "out", layout)))
    assert after.members.keys() == before.members.keys()
    for place, kept in before.members.items():
        assert after.members[place] == kept, place
    assert {group: before.sizes[group] for group, _ in before.members} == after.sizes
    assert after.cancelled - before.cancelled == {("many", 4)}
    assert after.policies >= after.named == before.named


def test_what_came_back_comes_back_again_and_adds_nothing(mixed: Settings, filled: Fill, tmp_path: Path) -> None:
    """A second time round, in the other layout; and onto the log that it came from."""
    once = filled(exported(mixed, tmp_path / "once", "jsonl"))
    twice = filled(exported(once, tmp_path / "twice", "records"))
    assert on_the_log(twice).members == on_the_log(mixed).members
    report = asyncio.run(import_runs(mixed, [tmp_path / "once"]))
    assert report.ok
    assert sum(era.imported for era in report.eras.values()) == 0


def test_an_eval_whose_episodes_name_no_group_keeps_its_groups(filled: Fill, samples: Path, tmp_path: Path) -> None:
    first = filled(samples / "eval")
    before = on_the_log(first)
    after = on_the_log(filled(exported(first, tmp_path / "out", "jsonl")))
    assert set(before.sizes.values()) == {4}
    assert after.sizes == before.sizes


def test_only_lines_that_need_it_have_a_stamp(filled: Fill, samples: Path, tmp_path: Path) -> None:
    """An episode that says its group and lies in order beside the others is as verifiers wrote it."""
    exported(filled(demo_run(), samples / "eval"), tmp_path / "out", "jsonl")
    lines = [
        orjson.loads(line) for path in (tmp_path / "out").rglob("*.jsonl") for line in path.read_bytes().splitlines()
    ]
    assert {"rolloutlog" in line for line in lines if line.get("group")} == {False}
    assert {"rolloutlog" in line for line in lines if not line.get("group")} == {True}


READ_EPISODES = """
import json, pathlib, sys
import verifiers.v1 as vf
files = pathlib.Path(sys.argv[1]).rglob("traces.jsonl")
print(sum(vf.WireEpisode.model_validate(json.loads(line)) is not None for file in files for line in file.open()))
"""


@pytest.mark.skipif(
    not os.environ.get("VERIFIERS_PYTHON"), reason="VERIFIERS_PYTHON names no Python with verifiers 0.4.0"
)
def test_verifiers_reads_every_line(mixed: Settings, tmp_path: Path) -> None:
    """verifiers 0.4.0, in an environment of its own, reads what was exported of all eras and of workers."""
    exported(mixed, tmp_path / "out", "jsonl")
    done = subprocess.run(
        [os.environ["VERIFIERS_PYTHON"], "-c", READ_EPISODES, str(tmp_path / "out")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 60
