"""The start of the command, before its modules are there."""

from __future__ import annotations

import re
import signal
import subprocess
import sys

import pytest

IMPORTED = re.compile(r"import time:.*\| +rolloutlog\.cli\.(?!start)")
"""A line that Python prints for a module of the command line that was imported."""


@pytest.mark.parametrize(
    ("number", "words", "code"),
    [
        (signal.SIGINT, ("--version",), 130),
        (signal.SIGINT, ("feed",), 130),
        (signal.SIGTERM, ("--version",), 143),
        (signal.SIGTERM, ("feed", "--environment", "reversal"), 0),
    ],
    ids=["ctrl-c", "ctrl-c-service", "sigterm", "sigterm-service"],
)
def test_a_signal_while_the_command_imports_ends_it_without_a_traceback(
    number: signal.Signals, words: tuple[str, ...], code: int
) -> None:
    """Python says which modules it has imported; the signal comes after the first of ours."""
    started = (
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # a script's background ignores it
    )
    started += "from rolloutlog.cli.start import main; main()"
    with subprocess.Popen(
        [sys.executable, "-X", "importtime", "-c", started, *words],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        assert process.stderr is not None
        while not IMPORTED.search(process.stderr.readline()):
            assert process.poll() is None
        process.send_signal(number)
        said = process.stderr.read()
        printed = process.stdout.read()
    assert (process.returncode, printed) == (code, "")
    assert "Traceback" not in said


ALL_HELP = """
import sys
from collections.abc import Iterator
from typing import Any
import typer
from rolloutlog.cli.main import app, run

def commands(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    yield path
    for name, inner in getattr(command, "commands", {}).items():
        yield from commands(inner, (*path, name))

for path in commands(typer.main.get_command(app)):
    if run([*path, "--help"]) != 0:
        sys.exit(f"{path} has no help")
print(*sys.modules, file=sys.stderr)
"""


def test_every_help_loads_the_command_line_and_no_room_that_a_command_calls() -> None:
    done = subprocess.run([sys.executable, "-c", ALL_HELP], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("Usage: ") > 30
    loaded = set(done.stderr.split())
    assert not loaded & {"torch", "aiokafka", "numpy"}
    assert {name.split(".")[1] for name in loaded if name.startswith("rolloutlog.")} == {
        "cli", "contract", "settings_sources",
    }  # fmt: skip
