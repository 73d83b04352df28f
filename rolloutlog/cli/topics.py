"""`rolloutlog topics`: the run's topics with the right settings.

Guarantees: `create` is idempotent and declares the run; a mismatch is refused and named. Leaves out: the settings
themselves (`rolloutlog.contract.topics`).
"""

from __future__ import annotations

import asyncio
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rolloutlog.cli.given_offsets import offsets_by_partition
from rolloutlog.cli.options import AsJson, with_settings
from rolloutlog.cli.screen.output import line, note, print_json, print_table
from rolloutlog.cli.target_broker import with_broker
from rolloutlog.contract.errors import SettingsError
from rolloutlog.contract.roles import Role
from rolloutlog.contract.settings import Settings

if TYPE_CHECKING:
    from rolloutlog.contract.events.declared_source import DeclaredSource
    from rolloutlog.kafka.client.admin import TopicReport

SourceManifest = Annotated[
    Path | None,
    typer.Option(
        "--source",
        metavar="MANIFEST",
        help="A frozen buffer of another namespace (`replay --format manifest`), whose rollouts the run draws on too.",
    ),
]

Offline = Annotated[
    bool,
    typer.Option("--offline", help="The trainer trains the source's own rollouts; nothing is made in the namespace."),
]

SourceNamespace = Annotated[
    str | None,
    typer.Option(
        "--source-namespace",
        metavar="NAMESPACE",
        help="A source by its name in place of a manifest: all that it holds now, unless offsets say less.",
    ),
]
FromOffset = Annotated[
    list[str] | None,
    typer.Option("--from-offset", metavar="PARTITION/OFFSET", help="With --source-namespace: from this one on."),
]
ToOffset = Annotated[
    list[str] | None,
    typer.Option("--to-offset", metavar="PARTITION/OFFSET", help="With --source-namespace: up to this one."),
]

app = typer.Typer(no_args_is_help=True, help="The run's topics: create, describe, delete, rights.")


@app.command()
@with_settings
def create(
    settings: Settings,
    source: SourceManifest = None,
    source_namespace: SourceNamespace = None,
    from_offset: FromOffset = None,
    to_offset: ToOffset = None,
    offline: Offline = False,
    as_json: AsJson = False,
) -> None:
    """Create the topics of the namespace and declare the run; safe to repeat."""
    from rolloutlog.consumers.replaying.source_choice import choose_offsets, choose_source
    from rolloutlog.kafka.client.admin import create_topics
    from rolloutlog.kafka.client.connection import connect
    from rolloutlog.kafka.run_record import declare

    _check_source(source, source_namespace, from_offset or to_offset, offline=offline)
    begins, ends = offsets_by_partition(from_offset or ()), offsets_by_partition(to_offset or ())
    reachable = with_broker(settings)

    async def chosen() -> DeclaredSource | None:
        if source_namespace is not None:
            return await choose_offsets(reachable, source_namespace, begins, ends, offline=offline)
        return None if source is None else await choose_source(reachable, source, offline=offline)

    async def work() -> None:
        connection = await connect(reachable, Role.OPERATOR)
        drawn_from = await chosen()
        reports = await create_topics(connection, settings)
        await declare(connection, settings, drawn_from)
        _print(settings, reports, as_json)

    asyncio.run(work())


def _check_source(source: Path | None, namespace: str | None, offsets: object, *, offline: bool) -> None:
    """Refuse options that say nothing alone, or two things. Raises SettingsError."""
    if source is not None and namespace is not None:
        raise SettingsError("two sources", "give --source or --source-namespace")
    if offsets and namespace is None:
        raise SettingsError("offsets without --source-namespace", "a manifest has its own")
    if offline and source is None and namespace is None:
        raise SettingsError("--offline without a source", "name what is trained: --source MANIFEST")


@app.command()
@with_settings
def describe(settings: Settings, as_json: AsJson = False) -> None:
    """Print the topics as they are on the cluster, with their settings."""
    from rolloutlog.kafka.client.admin import describe_topics
    from rolloutlog.kafka.client.connection import connect

    async def work() -> None:
        reports = await describe_topics(await connect(with_broker(settings), Role.OPERATOR, ()))
        _print(settings, reports, as_json)

    asyncio.run(work())


@app.command()
@with_settings
def delete(
    settings: Settings, yes: Annotated[bool, typer.Option("--yes", help="Don't ask. Every record is lost.")] = False
) -> None:
    """Delete the topics of the namespace with every record in them."""
    from rolloutlog.kafka.client.admin import delete_topics
    from rolloutlog.kafka.client.connection import connect

    if not yes and not _confirmed(f"delete every topic of namespace {settings.namespace}, with all records?"):
        raise SettingsError("nothing was deleted", "answer y, or give --yes")

    async def work() -> int:
        return len(await delete_topics(await connect(with_broker(settings), Role.OPERATOR, ())))

    line(f"deleted {asyncio.run(work())} topics")


def _confirmed(question: str) -> bool:
    """False where nobody can answer."""
    try:
        return typer.confirm(question, err=True)
    except typer.Abort:
        if sys.stdin.isatty():
            raise
        return False


def _print(settings: Settings, reports: list[TopicReport], as_json: bool) -> None:
    if as_json:
        print_json({"namespace": settings.namespace, "topics": [asdict(report) for report in reports]})
        return
    for report in reports:
        if report.mended:
            note(f"{report.name}: set {', '.join(report.mended)} as every run needs it")
    shown = ("cleanup.policy", "max.message.bytes", "retention.ms", "message.timestamp.type")
    rows = [
        (report.topic, report.partitions, report.replication, *(report.configs.get(name) for name in shown))
        for report in reports
    ]
    columns = ("topic", "partitions", "replicas", *shown)
    print_table(f"topics of {settings.namespace}", columns, rows, spare=("replicas", "message.timestamp.type"))


@app.command()
@with_settings
def acls(
    settings: Settings,
    source: SourceManifest = None,
    source_namespace: SourceNamespace = None,
    offline: Offline = False,
    as_json: AsJson = False,
) -> None:
    """Print the rights that each role needs, as commands for Kafka's own tool."""
    from rolloutlog.consumers.replaying.source_choice import read_manifest
    from rolloutlog.kafka.client.acls import acls as rights

    _check_source(source, source_namespace, None, offline=offline)
    drawn_from = source_namespace if source is None else read_manifest(source)[0].namespace
    for right in rights(settings.namespace, drawn_from, offline=offline):
        if as_json:
            print_json(right.as_json())
        else:
            line(right.command())
