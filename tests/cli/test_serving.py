"""A service ends when it is told to, whatever hangs in it, and nothing beside it ends it (design/commands#signals)."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap
import time

import pytest

FRAME = """
import asyncio, sys, threading, time
from rolloutlog.cli import serving
from rolloutlog.cli.serving import leave, serve
serving.END_S, serving.LEAVE_S = 1.5, 0.3

async def stubborn():
    while True:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            continue

async def service(stop):
    print("ready", flush=True)
    {body}
    await stop.wait()
    return "drained"

try:
    serve(service, lambda said: print(said, flush=True))
    leave(0)
except KeyboardInterrupt:
    leave(130)
"""


def ended(body: str, *numbers: signal.Signals, within_s: float = 15.0) -> tuple[int, str, str]:
    """Exit code, output after `ready`, and log of a service that got these signals, half a second apart."""
    program = FRAME.format(body=textwrap.indent(textwrap.dedent(body), "    ").strip())
    process = subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    time.sleep(0.3)
    for number in numbers:
        process.send_signal(number)
        time.sleep(0.5)
    try:
        out, err = process.communicate(timeout=within_s)
    finally:
        process.kill()
    return process.returncode, out, err


def test_sigterm_drains_and_ctrl_c_cancels() -> None:
    assert ended("", signal.SIGTERM) == (0, "drained\n", "")
    assert ended("", signal.SIGINT) == (130, "", "")


@pytest.mark.parametrize(
    "hangs",
    [
        "task = asyncio.create_task(stubborn(), name='stubborn')",
        "work = asyncio.ensure_future(asyncio.to_thread(time.sleep, 60))",
        "threading.Thread(target=time.sleep, args=(60,)).start()",
    ],
)
def test_what_hangs_beside_a_service_that_has_drained_is_left_behind(hangs: str) -> None:
    code, out, err = ended(hangs, signal.SIGTERM)
    assert (code, out) == (0, "drained\n")
    assert "Traceback" not in err
    code, out, _ = ended(hangs, signal.SIGINT)
    assert (code, out) == (130, "")


@pytest.mark.parametrize("hangs", ["await stubborn()", "time.sleep(60)", "while True: pass"])
def test_a_service_that_doesnt_drain_ends_after_a_set_time(hangs: str) -> None:
    """It swallows its cancellation, blocks the event loop, or computes for ever."""
    code, _, err = ended(hangs, signal.SIGTERM)
    assert code == 143
    assert "didn't end within 2 s of SIGTERM" in err


def test_a_second_ctrl_c_ends_it_at_once() -> None:
    begun = time.monotonic()
    assert ended("time.sleep(60)", signal.SIGINT, signal.SIGINT)[0] == 130
    assert time.monotonic() - begun < 8


@pytest.mark.parametrize(
    "leaves",
    [
        "async def leave_(): raise SystemExit(3)\ntask = asyncio.create_task(leave_())",
        "async def leave_(): raise KeyboardInterrupt\ntask = asyncio.create_task(leave_())",
        "asyncio.get_running_loop().call_soon(sys.exit, 3)",
        "asyncio.get_running_loop().stop()",
    ],
)
def test_nothing_beside_a_service_ends_it(leaves: str) -> None:
    code, out, err = ended(leaves, signal.SIGTERM)
    assert (code, out) == (0, "drained\n")
    assert "which goes on" in err


def test_what_a_service_raises_is_raised() -> None:
    code, _, err = ended("raise SystemExit(7)")
    assert (code, err) == (7, "")
