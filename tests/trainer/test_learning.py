"""A trainer that learns on recorded groups, and is killed at every point of draw, step, checkpoint, transaction and
rename: nothing is lost, nothing trained twice, and its weights are bit by bit those of one that never died
(design/trainer#checkpoints)."""

from __future__ import annotations

import asyncio
import hashlib
import json
import random
import secrets
import subprocess
import sys
from collections import Counter
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

from rolloutlog.broker import EmbeddedKafka
from rolloutlog.consumers.audit.auditor import audit
from rolloutlog.contract.policies import History
from rolloutlog.contract.settings import Settings
from rolloutlog.contract.topics import Topic
from rolloutlog.kafka.read.policy_log import PolicyFold, read_policy_log
from rolloutlog.trainer.loop.state_file import read_state
from tests.trainer.log import Log
from tests.trainer.recorded_groups import SIZE, recorded_groups
from tests.trainer.test_offline import offline

ROOT = Path(__file__).parents[2]
STEPS = 4
TRAINER: dict[str, Any] = {
    "batch_groups": 1, "starve_s": 60, "order": {"type": "arrival"},
    "staleness": {"max_staleness": "none", "on_unknown": "exempt"},
}  # fmt: skip
REQUESTS = ("InitProducerId", "AddPartitionsToTxn", "Produce", "EndTxn")
KINDS = (*REQUESTS, "write", "sync", "rename", "remove", "opened", "loaded", "drawn", "stepped", "told", "closed")


def kind_of(point: str) -> str:
    """What happens there: `Produce` of `Produce.after#3`."""
    return point.partition("#")[0].partition(".")[0]


class Warm:
    """The warm process, of which each trainer is a fork."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def train(self, log: Log, folder: Path, fatal: str | None = None, *, measured: bool = False) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        folder.mkdir(exist_ok=True)
        order = {"settings": log.settings.model_dump(mode="json"), "folder": str(folder), "steps": STEPS}
        self._process.stdin.write(json.dumps({**order, "fatal": fatal, "measured": measured}) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())


@pytest.fixture(scope="module")
def warm() -> Generator[Warm]:
    command = [sys.executable, "-m", "tests.trainer.learning_process"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        yield Warm(process)
        assert process.stdin is not None
        process.stdin.close()


def learning(broker: EmbeddedKafka) -> Log:
    """A run with a group a step, of one partition, so that its order is known."""
    made = Log(
        Settings.model_validate(
            {
                "namespace": f"learning-{secrets.token_hex(4)}",
                "bootstrap_servers": broker.bootstrap_servers,
                "topics": {"partitions": 1},
                "trainer": TRAINER,
            }
        )
    )
    asyncio.run(made.create())
    asyncio.run(made.write(*recorded_groups(STEPS)))
    return made


@pytest.fixture(scope="module")
def unbroken(warm: Warm, kafka_broker: EmbeddedKafka, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A trainer that nobody killed."""
    said = warm.train(learning(kafka_broker), tmp_path_factory.mktemp("unbroken"), measured=True)
    assert said["code"] == 0
    return said


def check_log(log: Log, folder: Path) -> None:
    """Each group has one live end; live checkpoints are those of the folder, and what the log says of them is so."""
    policies: PolicyFold = asyncio.run(read_policy_log(asyncio.run(log.at_rest(Topic.POLICY_VERSIONS))))
    history: History = policies.history
    finals = asyncio.run(log.finals())
    live = [(final.group, final.step) for final in finals if history.is_live(final.timeline, final.step)]
    assert sorted(step for _, step in live) == [*range(1, STEPS + 1)]
    assert Counter(group for group, _ in live) == Counter({one.slot.group for one in recorded_groups(STEPS)})
    found = asyncio.run(audit(log.settings))
    assert found.ok
    assert found.counts.produced == STEPS * SIZE
    saved = {one.step: one for one in policies.checkpoints.values() if history.is_live(one.timeline, one.step)}
    assert saved.keys() == {1, 3}
    newest = saved[3]
    path = Path(newest.uri.removeprefix("file://"))
    assert hashlib.sha256(path.read_bytes()).hexdigest() == newest.digest
    stream = read_state(path)["stream"]
    assert (stream["timeline"], stream["step"]) == newest.policy
    others = {one.name for one in (folder / "checkpoints").iterdir()} - {path.name}
    assert others <= {Path(one.uri).name for one in policies.checkpoints.values()}, "what no event names is gone"


@pytest.mark.broker
def test_it_lowers_its_loss(unbroken: dict[str, Any]) -> None:
    before, after = unbroken["losses"]
    assert after < before - 0.01


def killed_and_resumed(warm: Warm, log: Log, folder: Path, fatal: str) -> dict[str, Any]:
    assert warm.train(log, folder, fatal)["code"] == -9, f"never came to {fatal}"
    said = warm.train(log, folder)
    assert said["code"] == 0
    check_log(log, folder)
    return said


@pytest.mark.broker
def test_killed_at_a_few_points_it_ends_with_the_same_weights(
    warm: Warm, kafka_broker: EmbeddedKafka, unbroken: dict[str, Any], tmp_path: Path
) -> None:
    chosen = random.Random(12).sample(unbroken["points"], 3)
    for number, fatal in enumerate(chosen):
        said = killed_and_resumed(warm, learning(kafka_broker), tmp_path / str(number), fatal)
        assert said["digest"] == unbroken["digest"], fatal


@pytest.mark.broker
@pytest.mark.parametrize("point", ["EndTxn.after#3"])
def test_killed_offline_it_ends_with_the_weights_of_one_that_trained_live(
    warm: Warm, kafka_broker: EmbeddedKafka, unbroken: dict[str, Any], tmp_path: Path, point: str
) -> None:
    """The same groups off a source that has ended (design/trainer#offline)."""
    source = learning(kafka_broker)
    asyncio.run(source.bring(0))
    said = killed_and_resumed(warm, asyncio.run(offline(source, **TRAINER)), tmp_path, point)
    assert said["digest"] == unbroken["digest"]
    assert asyncio.run(source.finals()) == []


@pytest.mark.chaos
@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("kind", KINDS)
def test_killed_at_every_point_it_ends_with_the_same_weights(
    warm: Warm, kafka_broker: EmbeddedKafka, unbroken: dict[str, Any], tmp_path: Path, kind: str
) -> None:
    assert {kind_of(point) for point in unbroken["points"]} == {*KINDS}
    for number, fatal in enumerate(point for point in unbroken["points"] if kind_of(point) == kind):
        said = killed_and_resumed(warm, learning(kafka_broker), tmp_path / str(number), fatal)
        assert said["digest"] == unbroken["digest"], fatal
