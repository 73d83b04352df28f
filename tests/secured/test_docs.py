"""docs/secured-clusters.md holds: its file, its commands, its roles, its keys."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest

pytest.importorskip("sybil")
from sybil import Sybil
from sybil.parsers.markdown import CodeBlockParser

from rolloutlog.cli import main
from rolloutlog.contract.roles import USED_BY, Role
from rolloutlog.contract.settings import Settings
from rolloutlog.kafka.client.admin import create_topics
from rolloutlog.kafka.client.connection import connection_of
from rolloutlog.kafka.client.properties import KNOWN
from rolloutlog.kafka.run_record import declare
from tests.secured.cluster import TLS, SecuredKafka, password_of
from tests.secured.wire import allow
from tests.secured.work import rights_in

PAGE = Path(__file__).parents[2] / "docs" / "secured-clusters.md"
pytestmark = pytest.mark.skipif(not PAGE.exists(), reason="an installed package has no docs/")


def rows(after: str) -> list[list[str]]:
    """What stands in code in the cells of the first table behind a heading."""
    table = PAGE.read_text().split(after)[1].split("\n\n|")[1].split("\n\n")[0]
    return [[*re.findall(r"`([^`]+)`", line)] for line in table.splitlines()[2:]]


def test_every_role_stands_there_with_what_it_is_for() -> None:
    assert {Role(role): tuple(used) for role, *used in rows("## Roles")} == USED_BY


def test_every_key_that_is_read_stands_there() -> None:
    text = (
        PAGE.read_text()
        .split("## Keys")[1]
        .split("## Roles")[0]
        .replace("`.certificates`", "`ssl.truststore.certificates`")
    )
    assert {name for name in re.findall(r"`([a-z.]+)`", text) if name in KNOWN} == KNOWN


@pytest.mark.broker
def test_the_file_and_the_commands_work(
    secured: SecuredKafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    blocks: list[tuple[str, str]] = []
    parsers = [
        CodeBlockParser(language, lambda example, kind=language: blocks.append((kind, str(example.parsed))))
        for language in ("properties", "console")
    ]
    for example in Sybil(parsers=parsers, encoding="utf-8").parse(PAGE).examples():
        example.evaluate()
    (file,) = (text for kind, text in blocks if kind == "properties")
    file = file.replace("kafka.example:9093", secured.address())
    Path("client.properties").write_text(file.replace('"secret"', f'"{password_of(Role.OPERATOR)}"'))
    Path("ca.pem").write_text((TLS / "ca.pem").read_text())
    admin = Settings(namespace="math", bootstrap_servers=secured.admin)

    async def make() -> None:
        await create_topics(connection_of(admin), admin)
        await declare(connection_of(admin), admin)
        await allow(secured.admin, Role.OPERATOR, rights_in("math", Role.OPERATOR))

    asyncio.run(make())
    doctor, acls = (text.split()[1:] for kind, text in blocks if kind == "console")
    assert main.run(doctor) == 0
    assert "user operator may act on the topics as operator" in " ".join(capsys.readouterr().out.split())
    assert main.run(acls) == 0
    assert len(capsys.readouterr().out.splitlines()) == sum(len(rights_in("math", role)) for role in Role)
