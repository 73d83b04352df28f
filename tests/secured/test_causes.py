"""What stands between us and a secured broker is said in one sentence: by library, commands and `doctor`."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from rolloutlog import GroupStream, PolicyPublisher, RolloutProducer, SyncRolloutProducer
from rolloutlog.cli import main
from rolloutlog.contract.errors import BrokerUnreachable, RolloutlogError, SecurityMismatch
from rolloutlog.contract.roles import Role
from rolloutlog.contract.settings import Settings
from rolloutlog.contract.topics import Topic
from rolloutlog.kafka.client.admin import create_topics
from rolloutlog.kafka.client.connection import connect, connection_of
from tests.producers.log import until
from tests.secured.cluster import TLS, SecuredKafka
from tests.secured.wire import allow, make_users
from tests.secured.work import rights_in

pytestmark = [pytest.mark.broker, pytest.mark.timeout(180)]

PASSWORD = "not the password"
CAUSES: dict[str, tuple[dict[str, str | None], str, type[RolloutlogError]]] = {
    "a wrong password": ({"password": PASSWORD}, "doesn't accept user people", SecurityMismatch),
    "an unknown user": ({"user": "mallory"}, "doesn't accept user mallory", SecurityMismatch),
    "another mechanism": ({"sasl__mechanism": "PLAIN"}, "doesn't offer sasl.mechanism PLAIN", SecurityMismatch),
    "an unknown CA": (
        {"ssl__truststore__location": str(TLS / "stranger-ca.pem")}, "is signed by nobody that we trust",
        SecurityMismatch,
    ),
    "no CA at all": (
        {"ssl__truststore__location": None, "ssl__truststore__type": None}, "is signed by nobody that we trust",
        SecurityMismatch,
    ),
    "another host": ({"listener": "ELSEWHERE"}, "is for another host", SecurityMismatch),
    "an expired certificate": ({"listener": "EXPIRED"}, "isn't valid now: certificate has expired", SecurityMismatch),
    "plaintext to TLS": ({"security__protocol": "PLAINTEXT"}, "speaks TLS, and security.protocol is", SecurityMismatch),
    "TLS to plaintext": ({"listener": "PLAINTEXT"}, "closes the connection when TLS begins", BrokerUnreachable),
    "a user to nobody": (
        {"listener": "PLAINTEXT", "security__protocol": "SASL_PLAINTEXT"}, "takes no user", SecurityMismatch
    ),
    "no user": ({"security__protocol": "SSL"}, "closes the connection at our first request", BrokerUnreachable),
}  # fmt: skip
"""What is changed in a file that is right, what is said then, and its kind."""


def wrong(secured: SecuredKafka, changed: dict[str, str | None], folder: Path) -> Path:
    """A client.properties with one thing wrong."""
    changed = dict(changed)
    user, password = changed.pop("user", None) or "people", changed.pop("password", None)
    listener = changed.pop("listener", None)
    if listener == "PLAINTEXT":
        changed["bootstrap__servers"] = secured.admin
    elif listener is not None:
        changed["bootstrap__servers"] = secured.address(listener)
    path = folder / "client.properties"
    path.write_text(secured.properties(user, password, **changed))
    return path


def right(secured: SecuredKafka, folder: Path, user: str = Role.PEOPLE) -> Path:
    path = folder / f"{user}.properties"
    path.write_text(secured.properties(user))
    return path


async def answers(settings: Settings) -> bool:
    """A broker knows of a password a moment after the controller."""
    try:
        await connect(settings)
    except SecurityMismatch:
        return False
    return True


@pytest.mark.parametrize("cause", CAUSES)
def test_the_cause_is_said(
    secured: SecuredKafka, tmp_path: Path, cause: str, capsys: pytest.CaptureFixture[str]
) -> None:
    changed, said, kind = CAUSES[cause]
    path = wrong(secured, changed, tmp_path)
    with pytest.raises(RolloutlogError, match=said) as refused:
        asyncio.run(connect(Settings(command_config=str(path))))
    assert type(refused.value) is kind
    assert PASSWORD not in refused.value.message + refused.value.hint
    assert main.run(["doctor", "--command-config", str(path)]) == 1
    shown = " ".join(capsys.readouterr().out.split())
    assert said in shown
    assert "bad broker:" in shown


@pytest.mark.parametrize("opened", ["producer", "sync producer", "publisher", "stream"])
def test_the_library_takes_command_config_and_says_the_same(secured: SecuredKafka, tmp_path: Path, opened: str) -> None:
    given: dict[str, Any] = {"namespace": "n", "command_config": str(wrong(secured, {"password": "x"}, tmp_path))}

    async def body() -> None:
        made = {"producer": RolloutProducer, "publisher": PolicyPublisher, "stream": GroupStream}[opened](**given)
        async with made:
            pass

    with pytest.raises(SecurityMismatch, match="doesn't accept user people"):
        if opened == "sync producer":
            SyncRolloutProducer(**given)
        else:
            asyncio.run(body())


COMMANDS = (
    "topics create", "topics describe", "topics delete --yes", "status", "groups", "audit", "candidates", "seeds list",
    "show run/0/0", "tail run", "dead-letters list", "replay --out {}/out", "import {}/results.jsonl", "buffer run",
    "buffer reindex", "train run --no-model",
)  # fmt: skip


def test_every_command_says_it(secured: SecuredKafka, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = wrong(secured, {"password": "x"}, tmp_path)
    (tmp_path / "results.jsonl").write_text('{"example_id": 1, "prompt": "p", "completion": "c"}\n')
    for command in COMMANDS:
        arguments = [*command.format(tmp_path).split(), "--command-config", str(path)]
        assert main.run(arguments) == 2, command
        assert "doesn't accept user people" in " ".join(capsys.readouterr().err.split()), command


def test_nothing_but_the_one_sentence_is_printed(secured: SecuredKafka, tmp_path: Path) -> None:
    """No traceback, no "Unclosed", no line of the client's own, also where the refusal comes late: of a group."""
    admin = Settings(namespace="quiet", bootstrap_servers=secured.admin)

    async def make() -> None:
        connection = connection_of(admin)
        await create_topics(connection, admin)
        for role in (Role.BUFFER, Role.WORKERS):
            await allow(secured.admin, role, [one for one in rights_in("quiet", role) if one.resource == "topic"])

    asyncio.run(make())
    commands = {
        "status": wrong(secured, {"password": "x"}, tmp_path),
        "buffer run": right(secured, tmp_path, Role.BUFFER),
        "worker run --environment tests.live.game:Game": right(secured, tmp_path, Role.WORKERS),
    }
    for command, path in commands.items():
        asked = [*command.split(), "-n", "quiet", "--command-config", str(path)]
        done = subprocess.run(
            [sys.executable, "-X", "dev", "-m", "rolloutlog.cli.main", *asked], capture_output=True, text=True,
            env=os.environ | {"COLUMNS": "500"}, check=False,
        )  # fmt: skip
        lines = [
            line for line in done.stderr.splitlines() if not line.startswith(("buffer of quiet", "worker of quiet"))
        ]
        assert [line.partition(":")[0] for line in lines] == ["error", "hint"], done.stderr


def test_the_address_of_the_file_is_taken_and_another_one_wins_aloud(
    secured: SecuredKafka, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A run was declared on another broker: the file named one, and the command took that of the data folder."""
    path = right(secured, tmp_path, Role.OPERATOR)
    asyncio.run(allow(secured.admin, Role.OPERATOR, rights_in("filed", Role.OPERATOR)))
    named = ["-n", "filed", "--command-config", str(path)]
    assert main.run(["topics", "create", *named]) == 0
    assert "using" not in capsys.readouterr().err
    assert main.run(["topics", "describe", *named, "-b", "127.0.0.1:9"]) == 3
    said = " ".join(capsys.readouterr().err.split())
    assert f"using 127.0.0.1:9, not the bootstrap.servers of {path}: {secured.address()}" in said


def test_a_password_that_was_changed_is_told_at_the_next_connection(secured: SecuredKafka, tmp_path: Path) -> None:
    """What is connected goes on; what connects again is refused."""
    settings = Settings(namespace="rotated", command_config=str(right(secured, tmp_path, "rotating")))

    async def body() -> None:
        await make_users(secured.admin, {"rotating": "secret of rotating"})
        await until(lambda: answers(settings))
        connection = await connect(settings)
        client = connection.client()
        await client.bootstrap()
        assert await client.fetch_all_metadata()
        await make_users(secured.admin, {"rotating": "another"})
        assert await client.fetch_all_metadata()
        await client.close()

        async def is_refused() -> bool:
            return not await answers(settings)

        await until(is_refused)
        with pytest.raises(SecurityMismatch, match="doesn't accept user rotating"):
            await connection.check()

    asyncio.run(body())


def test_a_consumer_over_tls_stops_while_the_broker_holds_its_answer_back(
    secured: SecuredKafka, tmp_path: Path
) -> None:
    """It took as long as a fetch may wait: half a second for each of a command's readers."""
    admin = Settings(namespace="stopped", bootstrap_servers=secured.admin)
    settings = Settings(namespace="stopped", command_config=str(right(secured, tmp_path)))

    async def body() -> float:
        await create_topics(connection_of(admin), admin)
        await allow(secured.admin, Role.PEOPLE, rights_in("stopped", Role.PEOPLE))
        connection = await connect(settings, Role.PEOPLE)
        consumer = connection.consumer(fetch_max_wait_ms=20_000, auto_offset_reset="earliest")
        consumer.subscribe([connection.names.topic(Topic.RUN)])
        await consumer.start()
        assert not await consumer.getmany(timeout_ms=500)
        began = time.monotonic()
        await consumer.stop()
        return time.monotonic() - began

    assert asyncio.run(body()) < 10.0
