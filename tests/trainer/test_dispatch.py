"""The dispatch service and the view of groups: restarts, SIGKILL, stopping (design/trainer#timelines and #view)."""

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

from rolloutlog.consumers.audit.auditor import audit
from rolloutlog.contract.errors import Starved
from rolloutlog.contract.events.group_events import GroupFinal, MemberExpired, expired_event, final_event
from rolloutlog.contract.events.policy_versions import timeline_started
from rolloutlog.contract.ids import id_of
from rolloutlog.contract.policies import Policy
from rolloutlog.contract.settings import Settings
from rolloutlog.contract.topics import Topic
from rolloutlog.contract.vocabulary import DropReason, Verdict
from rolloutlog.trainer.dispatch_service import run_dispatch
from rolloutlog.trainer.stream.group_stream import GroupStream
from rolloutlog.trainer.stream.group_view import groups_view
from tests.trainer.desk import rollout
from tests.trainer.log import Log, now

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


async def test_it_starts_no_timeline_and_takes_a_first_step_and_a_number_of_steps(log: Log) -> None:
    await log.bring(0)
    await write_groups(log, 0, 6)
    steps: list[int] = []
    report = await run_dispatch(log.settings, step=1, steps=2, on_step=lambda said: steps.extend(said.steps))
    assert (report.steps, steps) == (2, [1, 2])
    assert [final.step for final in await log.finals()].count(1) == 2
    assert len(await log.read(Topic.POLICY_VERSIONS)) == 1


async def test_it_goes_on_with_the_timeline_that_a_trainer_started(log: Log) -> None:
    async with GroupStream(log.settings):
        pass
    await write_groups(log, 0, 2)
    report = await run_dispatch(log.settings, drain=True)
    assert (report.steps, report.groups) == (1, 2)
    assert {(final.timeline, final.step) for final in await log.finals()} == {(0, 1)}
    assert len(await log.read(Topic.POLICY_VERSIONS)) == 2, "the trainer's timeline and version 0"


async def test_it_stops_when_asked_and_leaves_nothing_unwritten(log: Log) -> None:
    await log.bring(0)
    await log.write(*(rollout(m, 0, group=id_of("equal"), reward=1.0, seed=None) for m in range(2)))
    await write_groups(log, 0, 3)
    stop = asyncio.Event()
    report = await asyncio.wait_for(run_dispatch(log.settings, stop=stop, on_step=lambda said: stop.set()), timeout=30)
    assert report.steps == 1
    assert len(await log.finals()) == 3


async def test_the_view_shows_every_group_and_fences_nobody(log: Log) -> None:
    """Open, ready, held, trained or dropped, with verdicts and runs (design/trainer#view)."""

    async def shown(settings: Settings, step: int | None = None) -> dict[str, dict[str, Any]]:
        return {row["group"]: row async for row in groups_view(settings, step)}

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


async def test_nothing_is_judged_before_anybody_has_said_which_policies_there_are(log: Log) -> None:
    """A dispatch that comes before the trainer waits; the view shows what a trainer that starts now would be given."""
    assert (await run_dispatch(log.settings, drain=True)).steps == 0, "an empty log has nothing to wait for"
    await write_groups(log, 0, 2)
    with pytest.raises(Starved, match="no policy was ever published"):
        await run_dispatch(log.settings, drain=True)
    rows = [row async for row in groups_view(log.settings)]
    assert [(row["status"], row["step"]) for row in rows] == [("ready", 1)] * 2
    assert await log.read(Topic.DEAD_LETTERS) == []
    waiting = asyncio.create_task(run_dispatch(log.settings, steps=1))
    await log.bring(0)
    assert (await asyncio.wait_for(waiting, 30)).groups == 2
    await once_each(log, 2)


async def test_the_view_of_an_ended_group_is_by_the_settings_of_the_run(log: Log) -> None:
    """However the viewer's own differ (design/trainer#view: `mask_runs` are the trained tokens)."""
    await log.bring(0, 4)
    await write_groups(log, 0, 2)
    await run_dispatch(log.settings, drain=True)
    strict = {"max_staleness": None, "max_token_staleness": 0, "on_expire": "drop-group"}
    trainer = log.settings.trainer.model_validate({**log.settings.trainer.model_dump(), "staleness": strict})
    rows = [row async for row in groups_view(log.settings.model_copy(update={"trainer": trainer}))]
    assert [m["mask_runs"] for row in rows for m in row["members"]] == [[[0, 2]]] * 4


async def test_a_wait_for_a_policy_says_so_and_says_when_one_came(log: Log, caplog: pytest.LogCaptureFixture) -> None:
    """Nothing waits silently; the first record would otherwise be all that one ever hears
    (design/trainer#starvation)."""

    async def late() -> None:
        async with asyncio.timeout(60):
            while True:
                if "waiting: no policy was published or imported" in caplog.text:
                    break
                await asyncio.sleep(0.05)
        await log.bring(0)

    await write_groups(log, 0, 2)
    coming = asyncio.create_task(late())
    assert (await run_dispatch(log.settings, steps=1)).groups == 2
    await coming
    assert "a policy came after" in caplog.text


async def test_the_audit_knows_an_expired_member_of_a_timeline_that_was_left(log: Log) -> None:
    """`member.expired` is never void (design/trainer#expired), unlike final events above the fork."""
    said: dict[str, Any] = {"group": id_of(0), "group_size": 2, "timeline": 0, "step": 6}
    gone = MemberExpired(member=0, attempt=1, verdict=Verdict.EXPIRED, **said)
    final = GroupFinal(as_of=9, reason=DropReason.EXPIRED, **said)
    facts: dict[str, Any] = {"run": log.settings.run_id, "source": "/test", "now": now()}
    await log.write(timeline_started(0, None, 0, **facts))
    await log.publish(Policy(0, 0))
    await write_groups(log, 0, 1)
    await log.write(expired_event(gone, source="/test", now=now()), final_event(final, source="/test", now=now()))
    before = (await audit(log.settings)).counts
    assert (before.terms["expired"], before.dropped["expired"]) == (1, 1)
    await log.write(timeline_started(1, 0, 3, **facts))
    after = (await audit(log.settings)).counts
    assert (after.terms["expired"], after.dropped["expired"], after.terms["pending"]) == (1, 0, 1)
