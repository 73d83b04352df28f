"""Every ending of a command has its exit code, and errors their one form (design/commands#exit-codes)."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from importlib.metadata import requires
from pathlib import Path

import pytest

from rolloutlog.broker import EmbeddedKafka
from rolloutlog.cli.exit_code import EXTRA_OF
from rolloutlog.producers.importing.demo_records import demo_run

SCRIPT = Path(sys.executable).with_name("rolloutlog")


def run(*arguments: str, folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("ROLLOUTLOG_")}
    return subprocess.run(
        [SCRIPT, *arguments],
        cwd=folder,
        env=environment | variables,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def test_rights_on_a_source_are_told_by_its_name(tmp_path: Path) -> None:
    said = run("topics", "acls", "--source-namespace", "archive", "--offline", folder=tmp_path)
    assert said.returncode == 0
    assert "archive.rollouts" in said.stdout
    assert "archive" not in run("topics", "acls", folder=tmp_path).stdout


def test_good_use_exits_0(tmp_path: Path) -> None:
    assert run("--version", folder=tmp_path).stdout.startswith("rolloutlog ")
    shown = run("config", "show", "--json", folder=tmp_path)
    assert shown.returncode == 0
    assert json.loads(shown.stdout)["origins"]["namespace"] == "default"


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["nonsense"], 2),
        (["audit", "--nonsense"], 2),
        (["show", "rollouts-3-4", "-b", "127.0.0.1:1"], 2),
        (["train", "run", "--no-model", "--model", "mine:Model"], 2),
        (["train", "run", "--no-model"], 3),
        (["worker", "run", "--environment", "nowhere:Env"], 2),
        (["import", "nothing-here", "--dry-run"], 2),
        (["topics", "acls", "--offline"], 2),
        (["replay"], 2),
        (["replay", "--verify", "--out", "x"], 2),
        (["replay", "--to-offset", "0/1", "--to-offset", "0/2", "--out", "x"], 2),
        (["replay", "--to-offset", "1", "--out", "x"], 2),
        (["replay", "--to-time", "yesterday", "--out", "x"], 2),
        (["replay", "--to-time", "2026-01-01", "--out", "x"], 2),
        (["replay", "--to-time", "2026-01-01T00:00:00Z", "--to-step", "1", "--out", "x"], 2),
        (["replay", "--to-step", "1", "--out", "x"], 3),
        (["audit"], 3),
    ],
)
def test_bad_use_exits_2_and_no_broker_3(arguments: list[str], code: int, tmp_path: Path) -> None:
    assert run(*arguments, folder=tmp_path).returncode == code


def test_an_error_is_two_lines_or_one_object(tmp_path: Path) -> None:
    plain = run("audit", folder=tmp_path)
    assert plain.stdout == ""
    assert "error: no broker is configured" in plain.stderr
    assert "hint: start one with `rolloutlog broker up`" in plain.stderr
    as_json = run("audit", "--json", folder=tmp_path)
    assert as_json.stdout == ""
    assert set(json.loads(as_json.stderr)) == {"error", "message", "hint"}


def test_bad_use_is_one_object_with_json(tmp_path: Path) -> None:
    nobody = ["-b", "127.0.0.1:1"]
    for arguments, code in (
        (["audit", "--nope"], 2), (["tail", "foo"], 2), (["groups", "--step", "0"], 2), (["audit", *nobody], 3),
        (["status", "-n", "no namespace!", *nobody], 2),
    ):  # fmt: skip
        done = run(*arguments, "--json", folder=tmp_path)
        assert done.returncode == code
        assert set(json.loads(done.stderr)) == {"error", "message", "hint"}


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (["seeds"], "error: a command is missing"),
        (["tail", "rolouts"], "error: Invalid value for 'topic': 'rolouts' is"),
    ],
)
def test_bad_use_says_in_words_what_is_wrong(tmp_path: Path, command: list[str], message: str) -> None:
    done = run(*command, folder=tmp_path, COLUMNS="200")
    assert done.returncode == 2
    assert any(line.startswith(message) for line in done.stderr.splitlines()), done.stderr


def test_an_unreachable_address_is_named(tmp_path: Path) -> None:
    done = run("audit", "-b", "127.0.0.1:1", folder=tmp_path)
    assert done.returncode == 3
    assert "127.0.0.1:1" in done.stderr


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("option", ["", "--json"])
def test_a_closed_pipe_exits_141(tmp_path: Path, option: str, unbuffered: str) -> None:
    command = f"({SCRIPT} config show {option}; echo $? >code) | sleep 0"
    environment = os.environ | {"PYTHONUNBUFFERED": unbuffered}
    subprocess.run(["bash", "-c", command], cwd=tmp_path, env=environment, check=False, timeout=60)
    assert (tmp_path / "code").read_text().strip() == "141"


@pytest.mark.broker
def test_ctrl_c_exits_130_and_sigterm_drains_with_0(tmp_path: Path, kafka_broker: EmbeddedKafka) -> None:
    servers = kafka_broker.bootstrap_servers
    assert run("topics", "create", "-n", "signals", "-b", servers, folder=tmp_path).returncode == 0
    for number, code in ((signal.SIGTERM, 0), (signal.SIGINT, 130)):
        process = subprocess.Popen(
            [SCRIPT, "buffer", "run", "-n", "signals", "-b", servers], cwd=tmp_path, stderr=subprocess.PIPE, text=True
        )
        try:
            assert process.stderr is not None
            assert "reading" in process.stderr.readline()
            process.send_signal(number)
            assert process.wait(60) == code
        finally:
            process.kill()


@pytest.mark.broker
def test_a_namespace_that_isnt_there_is_bad_use(tmp_path: Path, kafka_broker: EmbeddedKafka) -> None:
    """Exit code 1 is for a proven no, such as an audit that fails."""
    for command in (["audit"], ["status"], ["candidates"]):
        done = run(*command, "-n", "nobody", "-b", kafka_broker.bootstrap_servers, folder=tmp_path)
        assert (done.returncode, "nobody." in done.stderr) == (2, True), done.stderr


@pytest.mark.broker
def test_topics_are_deleted_only_if_somebody_says_so(tmp_path: Path, kafka_broker: EmbeddedKafka) -> None:
    shared = ["-n", "kept", "-b", kafka_broker.bootstrap_servers]
    assert run("topics", "create", *shared, folder=tmp_path).returncode == 0
    refused = run("topics", "delete", *shared, folder=tmp_path)
    assert refused.returncode == 2
    assert "nothing was deleted" in refused.stderr
    assert run("topics", "delete", "--yes", *shared, folder=tmp_path).returncode == 0


@pytest.mark.broker
def test_a_follower_tells_ctrl_c_from_sigterm(tmp_path: Path, kafka_broker: EmbeddedKafka) -> None:
    """Both finish what was begun, and report it."""
    for number, code in ((signal.SIGTERM, 0), (signal.SIGINT, 130)):
        shared = ["-n", f"followed-{code}", "-b", kafka_broker.bootstrap_servers]
        assert run("topics", "create", *shared, folder=tmp_path).returncode == 0
        command = [SCRIPT, "import", "--follow", "--group-size", "4", str(demo_run()), "--json", *shared]
        process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True)
        try:
            deadline = time.monotonic() + 60
            while len(run("tail", "run", "--json", *shared, folder=tmp_path).stdout.splitlines()) < 4:
                assert time.monotonic() < deadline, "the cursor never moved"
            process.send_signal(number)
            out, _ = process.communicate(timeout=60)
            assert (process.returncode, set(json.loads(out)) >= {"eras"}) == (code, True)
        finally:
            process.kill()


@pytest.mark.broker
def test_the_doctor_proves_what_is_wrong_and_advises_the_rest(tmp_path: Path, kafka_broker: EmbeddedKafka) -> None:
    """An address that was given and doesn't answer is wrong; a namespace that nobody made yet isn't."""
    dead = run("doctor", "-b", "127.0.0.1:1", folder=tmp_path)
    assert (dead.returncode, "bad    broker" in dead.stdout) == (1, True)
    empty = run("doctor", "-n", "nobody", "-b", kafka_broker.bootstrap_servers, folder=tmp_path)
    assert (empty.returncode, "none of namespace nobody" in empty.stdout) == (0, True)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["demo", "--export", "file/below"], "file/below"),
        (["demo", "--recorded", "--json"], "--json is of the live demo"),
        (["demo", "--recorded", "--folder", "here"], "--folder is of the live demo"),
        (["demo", "--recorded", "--seconds", "9"], "--seconds is of the live demo"),
        (["demo", "--export", "new", "--steps", "3"], "--steps is of the live demo"),
        (["demo", "--export", "x" * 300], "x" * 300),
        (["import", "file/below", "--dry-run"], "file/below"),
        (["status", "--config", "."], "."),
        (["status", "--config", "file/below"], "file/below"),
        (["status", "-b", "127.0.0.1:1", "--command-config", "nowhere"], "nowhere"),
        (["audit", "-b", "http://kafka:9092"], "http://kafka:9092"),
        (["audit", "-b", "127.0.0.1:99999"], "127.0.0.1:99999"),
    ],
)
def test_a_path_or_an_address_that_cant_be_is_bad_use_and_named(
    arguments: list[str], named: str, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("no folder")
    done = run(*arguments, folder=tmp_path)
    assert (done.returncode, named in done.stderr) == (2, True), done.stderr


def test_sigterm_while_foreign_code_is_loaded_ends_a_service_well(tmp_path: Path) -> None:
    """Nothing has begun then; it isn't the environment that left the program."""
    (tmp_path / "slow.py").write_text("import os, signal, time\nos.kill(os.getpid(), signal.SIGTERM)\ntime.sleep(60)\n")
    done = run("worker", "run", "--environment", "slow:Slow", "-b", "127.0.0.1:1", folder=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_run_refuses_sources_that_cant_be_before_anything_starts(tmp_path: Path) -> None:
    """An environment or a file that a service would find out about (design/live-loop#run)."""
    for said, named in {
        'environments = ["chess"]': "no environment 'chess'",
        'environments = ["reversal"]\ntasks = { reversal = "gone.jsonl" }': "there is no gone.jsonl",
        'environments = ["own_tasks:Mine"]': "own_tasks",
    }.items():
        (tmp_path / "rolloutlog.toml").write_text(f"[loop]\n{said}\n")
        done = run("run", "-n", "n", folder=tmp_path)
        assert (done.returncode, named in done.stderr) == (2, True), done.stderr
        assert not (tmp_path / "runs").exists()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no full disk at hand")
def test_a_full_disk_behind_stdout_is_no_fault_of_ours(tmp_path: Path) -> None:
    for option in ("", "--json"):
        command = f"{SCRIPT} config show {option} >/dev/full"
        done = subprocess.run(["bash", "-c", command], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert (done.returncode, "the output: No space left on device" in done.stderr) == (2, True), done.stderr


def test_a_closed_stdout_is_nobodys_fault(tmp_path: Path) -> None:
    done = subprocess.run(["bash", "-c", f"{SCRIPT} config show >&-"], cwd=tmp_path, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")


def test_a_broken_stderr_exits_141(tmp_path: Path) -> None:
    command = f"({SCRIPT} audit --nope 2>&1 >/dev/null; echo $? >code) | sleep 0"
    subprocess.run(["bash", "-c", command], cwd=tmp_path, check=False, timeout=60)
    assert (tmp_path / "code").read_text().strip() == "141"


def test_whatever_an_extra_brings_is_told_by_its_name_where_it_is_missing() -> None:
    said = (re.match(r"(\w+)[^;]*; extra == ['\"](\w+)['\"]", line) for line in requires("rolloutlog") or [])
    brought = {(match[1], match[2]) for match in said if match and match[2] not in ("all", "testing")}
    assert brought == set(EXTRA_OF.items())
