"""The whole path once, on a recorded run that ships with the package, and on a broker that is there.

Guarantees: everything runs for real. Leaves out: a model; the rollouts were recorded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rolloutlog.cli.audit import print_audit
from rolloutlog.cli.groups import print_groups
from rolloutlog.cli.screen.output import line
from rolloutlog.cli.seeds import print_seeds
from rolloutlog.contract.settings import Settings

if TYPE_CHECKING:
    from rolloutlog.contract.record.rollout import Rollout

TRAINER: dict[str, Any] = {
    "batch_groups": 4,
    "max_open": 64,
    "overcommit": True,
    "staleness": {"max_staleness": 1, "max_token_staleness": 0, "on_expire": "keep-as-baseline"},
}
"""Tokens one version old leave the loss. Nobody works here, so many seeds may be open at once."""


async def recorded_walk(settings: Settings) -> None:
    """Import, derive, draw and audit, and print each."""
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
