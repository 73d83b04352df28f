"""compose.live.yaml: the live loop as containers, when they die and when all of it is stopped.

Guarantees: the real images and command lines, with the settings of the demo; torch is the one of this Python, since a
build with its own takes minutes and gigabytes. Leaves out: how far it learns, which `tests/live/test_demo.py` has.
"""

from __future__ import annotations

import sys
import sysconfig
from collections.abc import Iterator
from importlib.util import find_spec

import orjson
import pytest

from tests.containers.deadline import until
from tests.containers.stack import ROOT, Stack, run

pytestmark = [
    pytest.mark.containers,
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.skipif(find_spec("torch") is None, reason="torch isn't installed"),
    pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="the image's Python is 3.11, which this one isn't"),
]

FILES = ("compose.yaml", "compose.live.yaml", "tests/containers/torch.yaml")
SCALE = ("--scale", "worker=2", "--scale", "consumers=3")
STEPS_S = 300


@pytest.fixture
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """Feeders, workers, consumers and a trainer, up."""
    tasks = tmp_path_factory.mktemp("tasks")
    given = {"TORCH": "none", "TORCH_PACKAGES": sysconfig.get_path("purelib"), "TASKS": str(tasks)}
    stack = Stack(tasks, given, files=tuple(str(ROOT / file) for file in FILES))
    try:
        stack.build()
        stack.up(*SCALE)
        yield stack
    finally:
        stack.remove()


def steps_of(stack: Stack) -> list[int]:
    """The train steps that the trainer has written a row of; none before it has begun."""
    rows = stack.compose("exec", "-T", "trainer", "sh", "-c", "cat run/metrics.jsonl 2>/dev/null || true")
    return [orjson.loads(row)["step"] for row in rows.splitlines()]


def trained(stack: Stack, step: int) -> list[int]:
    """Wait for that step."""
    return until(lambda: steps_of(stack), lambda steps: len(steps) >= step, f"train step {step}", within_s=STEPS_S)


def test_it_goes_on_when_a_worker_and_a_consumer_die_and_after_a_stop(stack: Stack) -> None:
    """No step is lost or taken twice, and the audit is green (design/groups#accounting)."""
    before = trained(stack, 2)
    run("docker", "kill", stack.containers("worker")[0], stack.containers("consumers")[0])
    after = trained(stack, len(before) + 2)
    stack.up(*SCALE)
    assert [len(stack.containers(service)) for service in ("worker", "consumers")] == [2, 3]
    stack.down()
    assert stack.containers("kafka") == []
    stack.up(*SCALE)
    steps = trained(stack, len(after) + 2)
    assert steps == list(range(1, len(steps) + 1))
    (audit,) = until(lambda: stack.rolloutlog("audit"), bool, "an audit", within_s=STEPS_S)
    assert audit["violations"] == [], audit
    assert audit["trained"] > 0, audit
