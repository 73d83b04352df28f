"""An owned broker ends with its owner, however that ends."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

pytestmark = pytest.mark.broker

OWNER = """
import sys, time
from rolloutlog.broker import EmbeddedKafka
with EmbeddedKafka() as broker:
    print(broker.state.node(1).process.pid, broker.data_dir, flush=True)
    time.sleep(600)
"""


def test_no_orphan_is_left_when_the_owner_is_killed() -> None:
    """By SIGKILL: nothing of the owner runs any more that could clean up."""
    owner = subprocess.Popen([sys.executable, "-c", OWNER], stdout=subprocess.PIPE, text=True)
    assert owner.stdout is not None
    pid, folder = owner.stdout.readline().split(maxsplit=1)
    broker = psutil.Process(int(pid))
    assert "kafka.Kafka" in broker.cmdline()

    owner.kill()
    owner.wait()

    psutil.wait_procs([broker], timeout=5)
    assert not broker.is_running(), "the broker outlived its owner"
    assert gone(Path(folder.strip())), "its temporary data outlived its owner"


def gone(folder: Path) -> bool:
    """Whether the folder is removed within 5 seconds."""
    deadline = time.monotonic() + 5
    while folder.exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    return not folder.exists()
