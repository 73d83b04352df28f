"""`rolloutlog broker`: facts on stdout, exit codes for scripts."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from rolloutlog.broker import down
from rolloutlog.cli.main import run

Command = Callable[..., tuple[int, str, str]]


@pytest.fixture
def broker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Command:
    """Runs `rolloutlog broker ...` on a folder of the test's own; gives exit code, stdout, stderr."""
    monkeypatch.setenv("ROLLOUTLOG_DATA_DIR", str(tmp_path))

    def command(*arguments: str) -> tuple[int, str, str]:
        capfd.readouterr()
        code = run(["broker", *arguments])
        out, err = capfd.readouterr()
        return code, out, err

    return command


def test_where_no_broker_was_ever_started(broker: Command) -> None:
    assert broker("status")[:2] == (1, "no broker was ever started here\n")
    assert broker("status", "--json")[:2] == (1, '{"running":false}\n')
    assert broker("down", "--json")[:2] == (0, '{"stopped":false}\n')
    assert broker("reset", "--json")[:2] == (0, '{"removed":false}\n')
    code, out, err = broker("env")
    assert (code, out) == (3, "")
    assert "rolloutlog broker up" in err
    assert broker("logs")[0] == 1


def test_a_size_that_can_t_be_is_bad_use(broker: Command) -> None:
    code, out, err = broker("up", "--nodes", "2", "--json")
    assert (code, out) == (2, "")
    assert json.loads(err)["error"] == "SettingsError"


@pytest.mark.broker
def test_the_life_of_a_broker(broker: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    try:
        code, out, _ = broker("up", "--fast-start", "--json")
        facts = json.loads(out)
        assert code == 0
        assert (facts["running"], facts["owner"], facts["data_dir"]) == (True, None, str(tmp_path))
        assert [node["running"] for node in facts["nodes"]] == [True]

        again = json.loads(broker("up", "--json")[1])
        assert again["nodes"][0]["pid"] == facts["nodes"][0]["pid"], "it is found, not started"
        assert broker("status")[0] == 0
        assert broker("env")[1] == f"export ROLLOUTLOG_BOOTSTRAP_SERVERS={facts['bootstrap_servers']}\n"
        assert "Kafka Server started" in broker("logs")[1]
        assert len(broker("logs", "--lines", "1")[1].splitlines()) <= 2

        code, _, err = broker("reset", "--yes")
        assert code == 3
        assert "is running" in err
        assert broker("down")[:2] == (0, "stopped\n")
        code, out, _ = broker("status", "--json")
        assert (code, json.loads(out)["running"], json.loads(out)["nodes"][0]["why"]) == (1, False, None)

        monkeypatch.setattr("sys.stdin", io.StringIO("n\n"))
        assert broker("reset")[0] == 2
        assert broker("reset", "--yes")[:2] == (0, "removed\n")
        assert list(tmp_path.iterdir()) == []
    finally:
        down(tmp_path)
