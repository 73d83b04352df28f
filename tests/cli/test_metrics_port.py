"""Numbers of a service over HTTP (design/commands#metrics)."""

from __future__ import annotations

import asyncio
import socket
import urllib.request
from itertools import count

import pytest

from rolloutlog.cli.metrics_port import Metrics, exposed
from rolloutlog.cli.step_metrics import count_step
from rolloutlog.contract.errors import SettingsError
from rolloutlog.trainer.dispatch.batch import Batch
from rolloutlog.trainer.steps.drop_counts import DropCounts
from rolloutlog.trainer.steps.step_report import StepReport
from tests.trainer.desk import rollout
from tests.trainer.drawing import drawn_group


def free_port() -> int:
    with socket.socket() as bound:
        bound.bind(("", 0))
        return bound.getsockname()[1]


def get(port: int) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        assert answer.headers["Content-Type"].startswith("text/plain")
        return answer.read().decode()


async def test_numbers_can_be_had_while_the_service_runs() -> None:
    metrics, port = Metrics(), free_port()

    async def service() -> str:
        metrics.set("train_step", 7)
        metrics.set("train_reward", None)
        metrics.add("train_groups_total", 8)
        metrics.add_each("train_dropped_by_total", {'odd "one"\n': 2})
        silent = socket.create_connection(("127.0.0.1", port))  # one that asks for nothing hinders nobody
        with silent:
            return await asyncio.to_thread(get, port)

    assert await exposed(port, metrics, service()) == (
        "# TYPE rolloutlog_train_dropped_by_total counter\n"
        'rolloutlog_train_dropped_by_total{by="odd \\"one\\"\\n"} 2\n'
        "# TYPE rolloutlog_train_groups_total counter\n"
        "rolloutlog_train_groups_total 8\n"
        "# TYPE rolloutlog_train_reward gauge\n"
        "rolloutlog_train_reward NaN\n"
        "# TYPE rolloutlog_train_step gauge\n"
        "rolloutlog_train_step 7\n"
    )
    with pytest.raises(OSError, match="refused"):
        await asyncio.to_thread(get, port)


async def test_a_port_in_use_is_refused_before_the_service_begins() -> None:
    async def service() -> None:
        raise AssertionError

    with socket.socket() as taken:
        taken.bind(("", 0))
        taken.listen()
        with pytest.raises(SettingsError, match="no metrics on port"):
            await exposed(taken.getsockname()[1], Metrics(), service())


async def test_reports_of_steps_add_up_and_means_are_those_of_the_last() -> None:
    metrics = Metrics()
    for step in (5, 6):
        batch = Batch(step, (drawn_group(rollout(0), rollout(1), step=step),))
        count_step(metrics, StepReport.of(batch, DropCounts()))
    found = metrics.numbers
    assert (found["train_step", ""], found["train_groups_total", ""], found["train_reward", ""]) == (6, 2, 0.5)
    assert found["train_tokens_by_policy_total", "0:4"] == 8
    assert found["train_staleness_by_total", "0"] == found["train_staleness_by_total", "1"] == 2


async def test_numbers_are_looked_at_when_they_are_asked_for() -> None:
    metrics, port, looks = Metrics(), free_port(), count(1)

    async def service() -> list[str]:
        return [await asyncio.to_thread(get, port) for _ in range(2)]

    texts = await exposed(port, metrics, service(), lambda: metrics.set("looks", next(looks)))
    assert [text.splitlines()[-1] for text in texts] == ["rolloutlog_looks 1", "rolloutlog_looks 2"]
