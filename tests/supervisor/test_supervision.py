"""Services that die, end, hang or can't run, as real processes that are small (design/live-loop#run)."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from rolloutlog.broker.install.flock import locked
from rolloutlog.contract.errors import PathUnusable, ServiceFailed
from rolloutlog.contract.settings import Settings
from rolloutlog.supervisor import supervision as watching
from rolloutlog.supervisor.child import ending
from rolloutlog.supervisor.deaths import RecentDeaths
from rolloutlog.supervisor.live_run import run_live
from rolloutlog.supervisor.services import Service, ServiceRole
from rolloutlog.supervisor.supervision import Supervision

RUNS = "while :; do sleep 0.05; done"
DRAINS = f'trap "echo $0 >> order; exit 0" TERM; {RUNS}'
DEAF = f'trap "" TERM; {RUNS}'
ONCE = f"test -e $0.begun && exec sh -c '{RUNS}'; touch $0.begun; echo why; exit 7"
TRAINER, BUFFER, WORKER, FEEDER = ServiceRole.TRAINER, ServiceRole.BUFFER, ServiceRole.WORKER, ServiceRole.FEEDER
OWNER = """
import asyncio, sys
from pathlib import Path
from rolloutlog.supervisor.services import Service, ServiceRole
from rolloutlog.supervisor.supervision import Supervision
services = [Service("one", ServiceRole.WORKER, ("/bin/sh", "-c", sys.argv[1], "one"))]
async def never(*_):
    return False
supervision = Supervision(services, Path.cwd(), restarts=1, tell=print, has_done=never, on_death=never)
async def main():
    running = asyncio.create_task(supervision.run(asyncio.Event()))
    while not supervision.running:
        await asyncio.sleep(0.01)
    print(supervision.children[0].pid, flush=True)
    await running
asyncio.run(main())
"""


def service(name: str, role: ServiceRole, script: str) -> Service:
    return Service(name, role, ("/bin/sh", "-c", script, name))


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that services stand in."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def supervised(*services: Service, restarts: int = 2, done: bool = True) -> tuple[Supervision, list[str]]:
    """`done`: what ends well has done its work."""
    told: list[str] = []

    async def has_done(_: Service) -> bool:
        return done

    async def on_death(dead: Service, process: int) -> None:
        assert not psutil.pid_exists(process), f"{dead.name} is told to have died"

    how: dict[str, Any] = {"restarts": restarts, "tell": told.append}
    return Supervision(services, Path.cwd(), **how, has_done=has_done, on_death=on_death), told


async def ended(supervision: Supervision, stop: asyncio.Event | None = None) -> str:
    return await asyncio.wait_for(supervision.run(stop or asyncio.Event()), 30)


async def until(is_so: Callable[[], object]) -> None:
    async with asyncio.timeout(20):
        while not is_so():  # noqa: ASYNC110
            await asyncio.sleep(0.02)


async def test_they_end_one_role_after_another_and_each_drains(here: Path) -> None:
    roles = {"trainer": TRAINER, "buffer": BUFFER, "worker-0": WORKER, "worker-1": WORKER, "feeder": FEEDER}
    supervision, told = supervised(*(service(name, role, DRAINS) for name, role in roles.items()))
    stop = asyncio.Event()
    running = asyncio.create_task(ended(supervision, stop))
    await until(lambda: supervision.running == 5)
    await asyncio.sleep(0.3)  # until shells have their traps
    stop.set()
    assert await running == "stopped"
    order = (here / "order").read_text().split()
    assert [name.partition("-")[0] for name in order] == ["feeder", "worker", "worker", "buffer", "trainer"]
    assert told == []


async def test_a_cancellation_while_they_end_cuts_nothing_short(here: Path) -> None:
    """Such as Ctrl-C once all steps are trained."""
    slowly = f'trap "sleep 0.4; echo $0 >> order; exit 0" TERM; {RUNS}'
    supervision, told = supervised(service("trainer", TRAINER, slowly), service("worker", WORKER, slowly))
    stop = asyncio.Event()
    running = asyncio.create_task(supervision.run(stop))
    await until(lambda: supervision.running == 2)
    await asyncio.sleep(0.3)  # until shells have their traps
    stop.set()
    for _ in range(2):
        await asyncio.sleep(0.15)
        running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert ((here / "order").read_text().split(), supervision.running, told) == (["worker", "trainer"], 0, [])


async def test_the_end_of_the_trainers_steps_ends_the_run() -> None:
    supervision, _ = supervised(service("trainer", TRAINER, "sleep 0.2"), service("worker", WORKER, RUNS))
    assert await ended(supervision) == "steps"
    assert supervision.running == 0


async def test_the_end_of_all_data_ends_the_run_and_of_some_doesnt() -> None:
    supervision, _ = supervised(
        service("trainer", TRAINER, RUNS), service("one", FEEDER, "exit 0"), service("two", FEEDER, "sleep 0.5")
    )
    running = asyncio.create_task(ended(supervision))
    await until(lambda: supervision.children[1].is_done)
    assert not running.done()
    assert await running == "data"


@pytest.mark.parametrize("role", [TRAINER, FEEDER])
async def test_what_somebody_else_asked_to_end_is_started_again_and_told(role: ServiceRole) -> None:
    """A trainer that was sent SIGTERM ends as well as one that has trained all steps."""
    supervision, told = supervised(service("part", role, f"echo drained; {DRAINS}"), done=False)
    stop = asyncio.Event()
    running = asyncio.create_task(ended(supervision, stop))
    await until(lambda: "drained" in supervision.children[0].last_line if supervision.running else False)
    os.kill(supervision.children[0].pid or 0, signal.SIGTERM)
    await until(lambda: told and supervision.running)
    assert not running.done()
    stop.set()
    assert await running == "stopped"
    assert told == ["part ended with code 0, and starts again in 1 s: drained"]


async def test_what_dies_is_started_again_and_told() -> None:
    supervision, told = supervised(service("worker", WORKER, ONCE))
    stop = asyncio.Event()
    running = asyncio.create_task(ended(supervision, stop))
    await until(lambda: supervision.started_again and supervision.running)
    stop.set()
    await running
    assert told == ["worker ended with code 7, and starts again in 1 s: why"]
    assert supervision.started_again == {"worker": 1}


async def test_what_is_killed_is_told_by_its_signal() -> None:
    supervision, told = supervised(service("worker", WORKER, RUNS))
    stop = asyncio.Event()
    running = asyncio.create_task(ended(supervision, stop))
    await until(lambda: supervision.running)
    os.kill(supervision.children[0].pid or 0, signal.SIGKILL)
    await until(lambda: told)
    stop.set()
    await running
    assert told[0].startswith("worker ended with signal SIGKILL")


async def test_a_log_that_was_taken_away_ends_nothing() -> None:
    supervision, told = supervised(service("worker", WORKER, f"rm -f $0.log; {ONCE}"))
    stop = asyncio.Event()
    running = asyncio.create_task(ended(supervision, stop))
    await until(lambda: supervision.started_again and supervision.running)
    stop.set()
    await running
    assert told == ["worker ended with code 7, and starts again in 1 s: "]


def test_every_way_to_end_has_words() -> None:
    assert [ending(code) for code in (0, 7, -9, -35)] == ["code 0", "code 7", "signal SIGKILL", "signal 35"]


def test_deaths_of_long_ago_count_no_more() -> None:
    deaths = RecentDeaths()
    for now in range(0, 10_000, 100):
        deaths.add(now)
        assert deaths.count(now) <= 7
    assert deaths.count(20_000) == 0


async def test_one_run_at_a_time_writes_to_a_folder(here: Path) -> None:
    settings = Settings.model_validate({"loop": {"environments": ["reversal"]}, "bootstrap_servers": "127.0.0.1:9"})
    with locked(here / "lock"), pytest.raises(PathUnusable, match=f"another `rolloutlog run` writes to {here}"):
        await run_live(settings, [], here)
    (here / "file").touch()
    with pytest.raises(PathUnusable, match="file can't be written"):
        await run_live(settings, [], here / "file")


async def test_what_dies_too_often_ends_the_run_in_order(here: Path) -> None:
    supervision, told = supervised(
        service("worker", WORKER, "echo no luck; exit 4"), service("trainer", TRAINER, DRAINS), restarts=1
    )
    with pytest.raises(ServiceFailed, match=r"worker ended with code 4 for the 2. time in 10 minutes: no luck"):
        await ended(supervision)
    assert len(told) == 1
    assert (here / "order").read_text() == "trainer\n"


async def test_a_broker_that_is_away_is_no_fault_of_the_service() -> None:
    script = "test -e $0.2 && exec sh -c '" + RUNS + "'; test -e $0.1 && touch $0.2; touch $0.1; exit 3"
    supervision, told = supervised(service("worker", WORKER, script), restarts=0)
    stop = asyncio.Event()
    running = asyncio.create_task(ended(supervision, stop))
    await until(lambda: len(told) == 2 and supervision.running)
    stop.set()
    await running
    assert [line.partition(":")[0] for line in told] == [
        "worker ended with code 3, and starts again in 1 s",
        "worker ended with code 3, and starts again in 2 s",
    ]


async def test_settings_that_cant_work_arent_tried_again() -> None:
    supervision, told = supervised(service("worker", WORKER, "echo 'error: no such thing'; echo 'hint: x'; exit 2"))
    with pytest.raises(ServiceFailed, match="worker ended with code 2: error: no such thing"):
        await ended(supervision)
    assert told == []


async def test_who_doesnt_drain_is_killed_and_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(watching.DRAIN_S, WORKER, 0.5)
    supervision, told = supervised(service("worker", WORKER, DEAF))
    stop = asyncio.Event()
    running = asyncio.create_task(ended(supervision, stop))
    await until(lambda: supervision.running)
    await asyncio.sleep(0.3)
    stop.set()
    await running
    assert told == ["worker didn't end within 0.5 s, and is killed"]


def test_none_outlives_whoever_watches_them_even_if_that_is_killed() -> None:
    owner = subprocess.Popen([sys.executable, "-c", OWNER, RUNS], stdout=subprocess.PIPE, text=True)
    assert owner.stdout is not None
    watched = psutil.Process(int(owner.stdout.readline()))
    owner.kill()
    owner.wait()
    psutil.wait_procs([watched], timeout=10)
    assert not watched.is_running()
