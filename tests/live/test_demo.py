"""`rolloutlog demo` learns: held-out reward at least doubles, everything is on, and every record is accounted for."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("matplotlib")

ROLLOUTLOG = str(Path(sys.executable).with_name("rolloutlog"))
STEPS = "20"
"""A short form: all is learned after some 60."""


@pytest.mark.broker
@pytest.mark.timeout(600)
def test_the_reward_on_held_out_tasks_at_least_doubles(tmp_path: Path) -> None:
    command = [ROLLOUTLOG, "demo", "--folder", str(tmp_path), "--steps", STEPS, "--seconds", "420", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout.splitlines()[-1])
    assert report["reward_first"] < 0.2
    assert report["reward_last"] >= 2 * report["reward_first"]
    assert report["audit"]["ok"] is True, report["audit"]["violations"]
    assert report["masked_share"] < 0.2
    assert report["seeds"].keys() >= {"fresh", "continue", "recheck", "judge", "eval"}
    assert Path(report["plot"]).read_bytes().startswith(b"\x89PNG")
    config = shlex.split(report["resume"])[3]
    assert Path(config).is_file()
