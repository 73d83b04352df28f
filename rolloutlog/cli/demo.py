"""`rolloutlog demo --recorded`: the whole path once, on a recorded run that ships with the package.

Guarantees: everything runs for real, on an Apache Kafka that this command owns and that ends with it; nothing is left
behind. Leaves out: a model; the rollouts were recorded.
"""

from __future__ import annotations

import asyncio
import shutil
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rolloutlog.cli.audit import print_audit
from rolloutlog.cli.groups import print_groups
from rolloutlog.cli.screen.output import line, spinner
from rolloutlog.cli.seeds import print_seeds
from rolloutlog.contract.errors import SettingsError
from rolloutlog.contract.settings import Settings

if TYPE_CHECKING:
    from rolloutlog.broker import StartProgress
    from rolloutlog.contract.record.rollout import Rollout

NAMESPACE = "demo"
STAGES = {
    "fetch": "fetching Apache Kafka, once on this machine", "format": "formatting its data folder",
    "start": "starting Apache Kafka", "ready": "waiting until it answers",
}  # fmt: skip
TRAINER = {
    "batch_groups": 4,
    "max_open": 64,
    "overcommit": True,
    "staleness": {"max_staleness": 1, "max_token_staleness": 0, "on_expire": "keep-as-baseline"},
}
"""Tokens one version old leave the loss. Nobody works here, so many seeds may be open at once."""


def demo(
    recorded: Annotated[bool, typer.Option("--recorded", help="Use the recorded run that ships here.")] = False,
    export: Annotated[Path | None, typer.Option("--export", help="Only copy that run to a new folder.")] = None,
) -> None:
    """Walk the whole path over a recorded run, on a Kafka of its own that ends with the command."""
    if export is not None:
        _export(export)
        return
    if not recorded:
        raise SettingsError("this build demonstrates recorded rollouts only", "run `rolloutlog demo --recorded`")
    from rolloutlog.broker import EmbeddedKafka

    began = time.monotonic()
    with ExitStack() as stack:
        with spinner("starting Apache Kafka") as update:

            def show_stage(step: StartProgress) -> None:
                update(f"{STAGES[step.stage]} ({step.done}/{step.total})")

            broker = stack.enter_context(EmbeddedKafka(on_progress=show_stage))
        settings = Settings.model_validate(
            {"namespace": NAMESPACE, "bootstrap_servers": broker.bootstrap_servers, "trainer": TRAINER}
        )
        line(f"Apache Kafka runs at {broker.bootstrap_servers}, for this demo alone ({_since(began)})")
        asyncio.run(_walk(settings))
    line("")
    line(f"Stopped everything. {_since(began)} in all.")
    line("Next: docs/first-hour.md does the same by hand, on a broker that stays;")
    line("      docs/write-a-producer.md puts your own rollouts on the log.")


def _export(folder: Path) -> None:
    from rolloutlog.producers.importing.demo_records import demo_run

    if folder.exists():
        raise SettingsError(f"{folder} is there already", "name a folder that isn't")
    shutil.copytree(demo_run(), folder)
    line(f"{folder}: a recorded run; `rolloutlog import {folder}` puts it on a log")


async def _walk(settings: Settings) -> None:
    from rolloutlog.consumers.audit.auditor import audit
    from rolloutlog.consumers.buffer_service import run_buffer
    from rolloutlog.consumers.views.seed_view import seed_rows
    from rolloutlog.kafka.client.admin import create_topics
    from rolloutlog.kafka.client.connection import connect
    from rolloutlog.kafka.run_record import declare
    from rolloutlog.producers.importing.demo_records import demo_run
    from rolloutlog.producers.importing.import_service import import_runs
    from rolloutlog.trainer.dispatch_service import run_dispatch
    from rolloutlog.trainer.stream.group_view import groups_view

    _title("1. Rollouts go to the log, with their provenance")
    connection = await connect(settings)
    topics = await create_topics(connection, settings)
    await declare(connection, settings)
    report = await import_runs(settings, [demo_run()])
    line(
        f"{len(topics)} topics; imported {report.imported} recorded rollouts in {report.groups} groups "
        f"({report.policies} policies, known per episode)"
    )
    published = await _publish_mixed(settings)
    line(f"published group mixed: {published} rollouts whose tokens come from two policies each")

    _title("2. The buffer folds them, and emits derived seeds exactly once")
    await run_buffer(settings, drain=True)
    print_seeds([row async for row in seed_rows(settings)])
    line("each asks for a new group that resumes at that node of its source; a worker takes it under a lease")

    _title("3. The trainer draws whole groups, and masks stale tokens by the recorded offsets")
    rows = [row async for row in groups_view(settings)]
    print_groups([row for row in rows if row["status"] == "ready"])
    dispatched = await run_dispatch(settings, drain=True)
    line(
        "trained: tokens in the loss, of all that were sampled; mask: their start+length, where some came from "
        "a policy too old"
    )
    line(f"{dispatched.groups} groups trained, {dispatched.trainable_tokens} tokens in the loss")

    _title("4. The audit: every rollout counts exactly once")
    await run_buffer(settings, drain=True)
    print_audit((await audit(settings)).as_json())


async def _publish_mixed(settings: Settings) -> int:
    """One more group through the producer: a weight update landed in the middle of each rollout."""
    from rolloutlog.producers.producer import RolloutProducer

    async with RolloutProducer(settings) as producer:
        return len(await producer.publish_many(_mixed(member) for member in range(4)))


def _mixed(member: int) -> Rollout:
    from rolloutlog.contract.record.rollout import Rollout

    old, new = 3 + member, 5
    return Rollout.flat(
        prompt_ids=[11, 12, 13],
        response_ids=list(range(100, 100 + old + new)),
        logprobs=[-0.5] * (old + new),
        versions=[1] * old + [2] * new,
        reward=float(member % 2),
        group="mixed",
        member=member,
        group_size=4,
    )


def _title(text: str) -> None:
    line("")
    line((text, "bold"))


def _since(began: float) -> str:
    return f"{time.monotonic() - began:.1f} s"
