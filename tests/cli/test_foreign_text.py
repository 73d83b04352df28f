"""No command lets text of a record steer the terminal, whichever field it stands in (design/commands#foreign-text)."""

from __future__ import annotations

import ast
import asyncio
import re
import secrets
from pathlib import Path

import pytest

import rolloutlog.cli
from rolloutlog.broker import EmbeddedKafka
from rolloutlog.cli.main import run
from rolloutlog.contract.record.rollout import Rollout
from rolloutlog.contract.record.slot import Slot
from rolloutlog.contract.record.trajectory import Trajectory
from rolloutlog.contract.settings import Settings
from tests.buffer.events_by_hand import tool_turns
from tests.cases.raw import Raw
from tests.trainer.log import Log

EVIL = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202e\nnext [red]red[/]"
STEERING = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
COMMANDS = (
    "status", "groups", "groups --json", "candidates", "seeds list", "seeds list --json", "tail rollouts",
    "tail rollouts --json", "tail dead-letters", "tail seeds", "tail rollout-index", "tail run", "show rollouts/0/0",
    "show rollouts/0/0 --json", "show rollouts/0/4", "show dead-letters/0/0", "dead-letters list", "audit", "doctor",
    "topics describe", "candidates --derivation " + EVIL.replace(" ", "_"), "show rollouts/0/999",
)  # fmt: skip


@pytest.fixture
def evil(kafka_broker: EmbeddedKafka) -> Settings:
    """A run whose records say such text wherever they may."""
    settings = Settings.model_validate(
        {
            "namespace": f"evil-{secrets.token_hex(4)}",
            "bootstrap_servers": kafka_broker.bootstrap_servers,
            "topics": {"partitions": 1},
        }
    )
    asyncio.run(_write(Log(settings)))
    return settings


async def _write(log: Log) -> None:
    await log.create()
    await log.bring(0)
    for member in range(2):
        told = Trajectory.build(tool_turns(1), {"reward": float(member), "task": {"prompt": EVIL}})
        await log.write(Rollout(Slot(group=f"g{EVIL}", group_size=2, member=member, env=f"env{EVIL}"), told))
    sound = Raw.of(Rollout(Slot(group=f"b{EVIL}", group_size=2, member=0), Trajectory.build(tool_turns(1), {})))
    bad = sound.but({"type": f"rollout.{EVIL}".encode(), f"ce_{EVIL}": EVIL.encode()})
    await log.write_raw([bad, sound.holding(f'{{"{EVIL}": 1}}'.encode(), "application/json")])


@pytest.mark.broker
def test_no_command_passes_on_what_steers_a_terminal(
    evil: Settings, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ROLLOUTLOG_NAMESPACE", evil.namespace)
    monkeypatch.setenv("ROLLOUTLOG_BOOTSTRAP_SERVERS", str(evil.bootstrap_servers))
    monkeypatch.setenv("ROLLOUTLOG_TOPICS__PARTITIONS", "1")
    run(["buffer", "run", "--drain"])
    said = 0
    for command in COMMANDS:
        run([str(word) for word in command.split(" ")])
        captured = capfd.readouterr()
        assert not STEERING.search(captured.out + captured.err), command
        said += "owned" in captured.out + captured.err
    assert said > len(COMMANDS) // 2, "the text was hardly met: this test would show nothing"


def test_one_module_prints() -> None:
    """So nothing gets past it."""
    folder = Path(rolloutlog.cli.__file__).parent
    for path in sorted(folder.glob("*.py")):
        if path.name == "output.py":
            continue
        called = {
            ast.unparse(node.func) for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)
        }
        assert not {"print", "typer.echo", "typer.secho", "Console", "sys.stdout.write", "sys.stderr.write"} & called
