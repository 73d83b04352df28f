"""Whatever an environment or an engine does, its members end on the log and the worker goes on
(design/groups#resolution)."""

from __future__ import annotations

import asyncio
import re
import signal
import sys

import pytest

from rolloutlog.contract.events.validation import read_headers, read_rollout
from rolloutlog.contract.settings import Settings
from rolloutlog.contract.vocabulary import EventType, Status
from rolloutlog.contract.wire.refusal import MESSAGE_LIMIT
from rolloutlog.producers.checked_record import checked_rollout
from rolloutlog.producers.endings import error_fact, failed
from rolloutlog.producers.workers.rollout_worker import run_worker
from tests.cases.rollouts import sound
from tests.producers import hostile
from tests.producers.log import emit, everything, seed_of, until
from tests.producers.test_worker import ROOT, SESSION_MS, data


@pytest.mark.parametrize("name", hostile.ERRORS)
def test_any_error_becomes_a_record(name: str) -> None:
    """Not UTF-8, 50 MB, NUL, no text or name at all: the member fails with what can be said."""
    error = hostile.ERRORS[name]()
    fact = error_fact(error)
    assert fact["type"] == ("Unnamed" if name == "unnamed" else type(error).__name__)
    assert len(fact["message"]) <= MESSAGE_LIMIT
    assert checked_rollout(failed(sound("g").slot, error), source="/t", now=1).value


def test_an_error_keeps_what_it_says() -> None:
    assert error_fact(FileNotFoundError("caf\udce9.txt"))["message"] == "caf\\udce9.txt"
    assert error_fact("\ud800")["message"] == "\\ud800"
    group = ExceptionGroup("unhandled errors", [ValueError("one"), KeyError("two")])
    assert error_fact(group)["message"] == "unhandled errors (2 sub-exceptions): ValueError: one; KeyError: 'two'"


@pytest.mark.broker
async def test_whatever_an_environment_does_its_members_end_and_the_worker_goes_on(
    settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    acts = [*hostile.ACTS, "stolen"]
    await emit(settings, *(seed_of(f"g{n}", task={"act": act}) for n, act in enumerate(acts)))
    stop = asyncio.Event()
    worker = asyncio.create_task(
        run_worker(settings, hostile.Hostile(), stop=stop, name="w", session_timeout_ms=SESSION_MS)
    )

    async def all_said() -> bool:
        assert not worker.done(), worker.result()
        cancelled = await everything(settings, kind=EventType.GROUP_CANCELLED)
        return len(await data(settings)) + len(cancelled) >= 2 * len(acts) - len(hostile.REFUSALS)

    await until(all_said)
    stop.set()
    endings = await worker
    ended = {(event.headers.group, event.headers.member): event for event in await data(settings)}
    for number, act in enumerate(acts):
        event = ended.get((f"g{number}", 0))
        assert (event is None) == (act in hostile.REFUSALS), act
        if event is not None:
            read_headers(event, 3)
            assert read_rollout(event).status == status_of(act), act
    assert endings["failed"] == len(hostile.ERRORS | hostile.RETURNED)
    assert endings["aborted"] == len(hostile.PAUSES)
    assert "\x1b" not in caplog.text
    assert max(map(len, caplog.text.splitlines())) < 1000


def status_of(act: str) -> Status:
    if act in hostile.PAUSES:
        return Status.ABORTED
    return Status.COMPLETED if act == "stolen" else Status.FAILED


@pytest.mark.broker
async def test_an_engine_may_do_the_same(settings: Settings) -> None:
    await emit(settings, seed_of("g"))
    stop = asyncio.Event()
    worker = asyncio.create_task(
        run_worker(settings, hostile.Asking(), hostile.HostileEngine(), stop=stop, session_timeout_ms=SESSION_MS)
    )

    async def said() -> bool:
        return len(await data(settings)) == 2

    await until(said)
    stop.set()
    assert await worker == {"failed": 2}
    for event in await data(settings):
        assert read_rollout(event).trajectory.record["errors"] == [{"type": "SystemExit", "message": "5"}]


PROGRAM = """
import logging, sys
from rolloutlog.cli.serving import leave, serve
from rolloutlog.contract.settings import Settings
from rolloutlog.producers.workers import member_runner, rollout_worker
from tests.producers.hostile import Beside

logging.basicConfig(level=logging.WARNING, format="%(message)s")
member_runner.CANCEL_S, rollout_worker.IDLE_S = 0.3, 0.1
settings = Settings.model_validate_json(sys.argv[1])
work = lambda stop: rollout_worker.run_worker(settings, Beside(), stop=stop, grace_s=0.5)
serve(work, lambda endings: print(dict(endings)))
leave(0)
"""


@pytest.mark.broker
async def test_what_an_environment_does_to_its_process_ends_no_worker_and_sigterm_does(settings: Settings) -> None:
    """Also one that never ends: its members are given back, and the process is gone soon after."""
    acts = ["task", "callback", "stop", "block", "stubborn"]
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        PROGRAM,
        settings.model_dump_json(exclude_unset=True),
        cwd=ROOT,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stderr is not None
    waits = (await process.stderr.readline()).decode()
    await emit(settings, *(seed_of(act, group_size=1, task={"act": act}) for act in acts))

    async def answered() -> bool:
        assert process.returncode is None
        return len(await data(settings)) == len(acts) - 1

    await until(answered, 60)
    process.send_signal(signal.SIGTERM)
    out, err = await asyncio.wait_for(process.communicate(), 60)
    assert waits.startswith("waiting: no ")
    assert (process.returncode, out.decode()) == (0, f"{{'completed': {len(acts) - 1}, 'aborted': 1}}\n")
    assert "rollout stubborn.0.1 doesn't end" in err.decode()
    assert "left behind, since it doesn't end: the task stubborn.0.1" in err.decode()
    assert re.search(r"stood still for \d+ s, longer than a lease", err.decode())
    statuses = {event.headers.group: event.headers.type for event in await data(settings)}
    assert statuses.pop("stubborn") == EventType.ROLLOUT_ABORTED
    assert set(statuses.values()) == {EventType.ROLLOUT_COMPLETED}
