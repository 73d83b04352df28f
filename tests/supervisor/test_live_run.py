"""`rolloutlog run` as a person runs it: killed in parts and whole, stopped, and gone on with (design/live-loop#run)."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import psutil
import pytest

pytest.importorskip("torch")

pytestmark = [pytest.mark.broker, pytest.mark.slow, pytest.mark.timeout(900)]

PATIENCE_S = 240
SETTINGS = """
namespace = "live"
[loop]
environments = ["reversal"]
[worker.engine]
letters = "abcdefgh="
[model]
width = 16
layers = 1
heads = 2
[trainer]
batch_groups = 4
staleness = { max_staleness = 4 }
[buffer]
derivations = []
group_size = 4
lease_s = 5
[topics]
partitions = 2
[training]
folder = "run"
checkpoint_steps = 3
"""


class Loop:
    """A run in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "rolloutlog.toml").write_text(SETTINGS)
        self.environ = {k: v for k, v in os.environ.items() if not k.startswith("ROLLOUTLOG_")}
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, *words: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "rolloutlog.cli.main", "run", *words]
        said = (self.folder / "said").open("ab")
        self._process = subprocess.Popen(command, cwd=self.folder, env=self.environ, stdout=said, stderr=said)
        return self._process

    @property
    def said(self) -> str:
        return (self.folder / "said").read_text()

    def rolloutlog(self, *words: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "rolloutlog.cli.main", *words],
            cwd=self.folder, env=self.environ, capture_output=True, text=True, check=False, timeout=120,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def audit(self) -> dict[str, Any]:
        """On the broker of the run, which ended with it."""
        self.rolloutlog("broker", "up")
        try:
            return orjson.loads(self.rolloutlog("audit", "--json"))
        finally:
            self.rolloutlog("broker", "down")

    @property
    def step(self) -> int:
        """The last train step that has a row."""
        path = self.folder / "run" / "metrics.jsonl"
        lines = path.read_bytes().splitlines() if path.exists() else []
        return orjson.loads(lines[-1])["step"] if lines else 0

    def children(self) -> list[psutil.Process]:
        assert self._process is not None
        return psutil.Process(self._process.pid).children(recursive=True)

    def find(self, words: str) -> psutil.Process:
        """The process whose command line has these words."""
        found = [one for one in self.children() if words in " ".join(_command(one))]
        assert found, words
        return found[0]

    def until(self, what: str, is_so: Callable[[], object]) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not is_so():
            assert self._process is not None
            assert self._process.poll() is None, self.said
            assert time.monotonic() < deadline, f"{what}\n{self.said}"
            time.sleep(0.2)

    def trained(self, steps: int) -> None:
        """Wait for so many more train steps."""
        aim = self.step + steps
        self.until(f"train step {aim}", lambda: self.step >= aim)


def _command(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []


@pytest.fixture
def loop(tmp_path: Path) -> Loop:
    return Loop(tmp_path)


def test_whatever_dies_the_run_goes_on_and_the_audit_holds(loop: Loop) -> None:
    process = loop.start()
    loop.trained(2)
    for words in ("worker run", "train run", "buffer run", "feed --environment", "kafka.Kafka"):
        loop.find(words).kill()
        loop.trained(3)
    for words in ("worker-0", "trainer", "buffer-0", "feeder-0"):
        assert f"{words} ended with signal SIGKILL, and starts again" in loop.said
    assert "node 1 of the broker stopped" in loop.said
    process.send_signal(signal.SIGINT)
    assert process.wait(PATIENCE_S) == 130
    assert "it goes on with `rolloutlog run`" in loop.said
    stopped = loop.audit()
    assert stopped["ok"] is True

    process, children = loop.start(), list[psutil.Process]()
    loop.trained(2)
    children += loop.children()
    process.kill()
    process.wait()
    assert psutil.wait_procs(children, timeout=10)[1] == [], "a service outlived the run"

    before = loop.step
    assert loop.start("--steps", "3").wait(PATIENCE_S) == 0
    assert loop.step >= before + 3
    ended = loop.audit()
    assert ended["ok"] is True
    assert ended["trained"] > stopped["trained"]


def test_the_end_of_the_data_ends_the_run_with_every_task_trained_or_dropped(loop: Loop) -> None:
    """Ten groups for batches of four: the rest below a batch is trained as well (design/live-loop#run)."""
    rows = "".join(f'{{"key": "{n}", "word": "abc{letter}"}}\n' for n, letter in enumerate("abcdefghab"))
    (loop.folder / "words.jsonl").write_text(rows)
    path = loop.folder / "rolloutlog.toml"
    text = path.read_text().replace("[loop]", '[loop]\nepochs = 1\ntasks = { reversal = "words.jsonl" }')
    path.write_text(text.replace("[trainer]", "[trainer]\ndrop_zero_variance = false"))
    process = loop.start("--json")
    loop.trained(1)
    loop.find("train run").terminate()
    assert process.wait(PATIENCE_S) == 0
    assert '"ended":"data"' in loop.said
    assert "trainer ended with code 0, and starts again" in loop.said
    audited = loop.audit()
    assert (audited["ok"], audited["trained"], audited["pending"]) == (True, 40, 0)


def test_ctrl_c_twice_ends_all_at_once(loop: Loop) -> None:
    process = loop.start()
    loop.until("services", lambda: len(loop.children()) >= 5)
    children = loop.children()
    process.send_signal(signal.SIGINT)
    time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    assert process.wait(5) == 130
    assert psutil.wait_procs(children, timeout=10)[1] == []
