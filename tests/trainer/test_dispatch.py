"""The dispatch service and the view of groups: restarts, SIGKILL, stopping (design 8, 9.2 and 11)."""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from rolloutlog.consumers.audit import audit
from rolloutlog.contract.ids import id_of
from rolloutlog.contract.settings import Settings
from rolloutlog.contract.topics import Topic
from rolloutlog.trainer.dispatch import run_dispatch
from rolloutlog.trainer.view import groups_view
from tests.trainer.desk import rollout
from tests.trainer.log import Log

pytestmark = pytest.mark.broker

PROCESS = Path(__file__).with_name("trainer_process.py")


@contextmanager
def trainer(moment: str, settings: Settings) -> Generator[subprocess.Popen[str]]:
    """A trainer process, ended by SIGKILL."""
    command = [sys.executable, str(PROCESS), moment, settings.model_dump_json()]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def wait_for(process: subprocess.Popen[str], word: str) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        if line.strip() == word:
            return
    pytest.fail(f"the trainer ended with {process.wait()} before it said {word!r}")


async def write_groups(log: Log, first: int, last: int) -> None:
    await log.write(*(rollout(m, 0, group=id_of(i), seed=None) for i in range(first, last) for m in range(2)))


async def once_each(log: Log, groups: int) -> None:
    """Every group has exactly one final event, and the audit accounts for every record."""
    finals = Counter(final.group for final in await log.finals())
    assert finals == Counter(id_of(i) for i in range(groups))
    found = await audit(log.settings)
    assert (found.ok, found.violations, found.counts.terms["trained"]) == (True, [], 2 * groups)


@pytest.mark.parametrize("moment", ["drawn", "open"])
def test_killed_between_draw_and_commit_nothing_is_lost_and_nothing_is_trained_twice(log: Log, moment: str) -> None:
    asyncio.run(log.bring(0))
    asyncio.run(write_groups(log, 0, 5))
    with trainer(moment, log.settings) as process:
        wait_for(process, moment)
    assert asyncio.run(log.finals()) == []
    report = asyncio.run(run_dispatch(log.settings, drain=True))
    assert (report.steps, report.groups) == (3, 5)
    asyncio.run(once_each(log, 5))


def test_killed_at_any_moment(log: Log) -> None:
    """SIGKILL at random moments while rollouts come; at the end every group was trained once."""
    dice = random.Random(3)
    asyncio.run(log.bring(0))
    for first in (0, 8, 16):
        asyncio.run(write_groups(log, first, first + 8))
        with trainer("service", log.settings) as process:
            wait_for(process, "step")
            time.sleep(dice.random() / 2)  # where in its work it dies is the point
    asyncio.run(run_dispatch(log.settings, drain=True))
    asyncio.run(once_each(log, 24))


def test_it_starts_no_timeline_and_takes_a_first_step_and_a_number_of_steps(log: Log) -> None:
    async def body() -> None:
        await log.bring(0)
        await write_groups(log, 0, 6)
        steps: list[int] = []
        report = await run_dispatch(log.settings, step=1, steps=2, on_step=lambda said: steps.append(said.step))
        assert (report.steps, steps) == (2, [1, 2])
        assert [final.step for final in await log.finals()].count(1) == 2
        assert len(await log.read(Topic.POLICY_VERSIONS)) == 1

    asyncio.run(body())


def test_it_stops_when_told_and_writes_its_notes(log: Log) -> None:
    async def body() -> None:
        await log.bring(0)
        await log.write(*(rollout(m, 0, group=id_of("equal"), reward=1.0, seed=None) for m in range(2)))
        await write_groups(log, 0, 3)
        stop = asyncio.Event()
        report = await asyncio.wait_for(
            run_dispatch(log.settings, stop=stop, on_step=lambda said: stop.set()), timeout=30
        )
        assert report.steps == 1
        assert len(await log.finals()) == 3

    asyncio.run(body())


def test_the_view_shows_every_group_and_fences_nobody(log: Log) -> None:
    """Design 11: open, ready, held, trained or dropped, with verdicts and runs."""

    async def shown(settings: Settings, step: int | None = None) -> dict[str, dict[str, Any]]:
        return {row["group"]: row async for row in groups_view(settings, step)}

    async def body() -> None:
        await log.bring(0, 4)
        await write_groups(log, 0, 2)
        await run_dispatch(log.settings, drain=True)
        await log.write(
            rollout(0, 4, group=id_of("open"), seed=None),
            *(rollout(m, 4, group=id_of("ready"), seed=None) for m in range(2)),
            *(rollout(m, [0, 4], group=id_of("old"), seed=None) for m in range(2)),
            *(rollout(m, 0, group=id_of("equal"), reward=1.0, seed=None) for m in range(2)),
        )
        before = len(await log.read(Topic.GROUP_EVENTS))
        rows = await shown(log.settings)
        assert {row["group"]: (row["status"], row["reason"], row["step"]) for row in rows.values()} == {
            id_of(0): ("trained", None, 1),
            id_of(1): ("trained", None, 1),
            id_of("open"): ("open", None, 5),
            id_of("ready"): ("ready", None, 5),
            id_of("old"): ("dropped", "no-seed", 5),
            id_of("equal"): ("dropped", "zero-variance", 1),
        }
        assert [m["mask_runs"] for m in rows[id_of(0)]["members"]] == [[[0, 2]], [[0, 2]]]
        assert (await shown(log.settings, 3))[id_of("ready")]["status"] == "held"
        assert len(await log.read(Topic.GROUP_EVENTS)) == before

    asyncio.run(body())
