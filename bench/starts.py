"""Starting a trainer with a million ended groups behind its watermark, beside the start of an empty run.

Guarantees: chunks, final events and watermarks lie on one broker as a trainer leaves them; each start is a process of
its own, whose memory is all that it ever held, Python and its modules included. Leaves out: groups that are open, whose
records are read as ever, and the reading of dead letters.
"""

from __future__ import annotations

import asyncio
import resource
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from time import perf_counter, process_time

import orjson

from bench.report import Figure
from rolloutlog.broker import EmbeddedKafka
from rolloutlog.contract.events.group_events import GroupFinal, ended_event, final_event
from rolloutlog.contract.events.policy_versions import policy_published, timeline_started
from rolloutlog.contract.events.run import TRAINER_SOURCE, step_closed
from rolloutlog.contract.events.watermarks import PartitionMarks, Watermarks
from rolloutlog.contract.ids import ended_id
from rolloutlog.contract.partitions import partition_of
from rolloutlog.contract.policies import Policy
from rolloutlog.contract.settings import Settings
from rolloutlog.kafka.client.admin import create_topics
from rolloutlog.kafka.client.connection import connect
from rolloutlog.kafka.run_record import declare
from rolloutlog.kafka.write.writing import Writer
from rolloutlog.trainer.groups.ended_groups import CHUNK
from rolloutlog.trainer.stream.group_stream import GroupStream

PARTITIONS, GROUPS, PARTIAL, ROUNDS = 6, 1_000_000, 1000, 3
STEP = 125_000
"""Partial: ended groups of each partition that are in no chunk yet."""


def measure() -> Iterable[Figure]:
    """Seconds and megabytes of a start."""
    with EmbeddedKafka(fast_start=False) as broker:
        for name, groups in (("an empty run", 0), ("a million ended groups", GROUPS)):
            settings = _settings(broker.bootstrap_servers, f"starts-{groups}")
            asyncio.run(_write(settings, groups))
            found = sorted(_started(settings) for _ in range(ROUNDS))
            seconds, busy, known, megabytes = found[len(found) // 2]
            if known < groups:
                raise RuntimeError(f"{known} of {groups} ended groups are known")
            yield Figure(bench="starts", name=name, value=seconds, unit="s", target="< 5" if groups else "")
            yield Figure(bench="starts", name=f"{name}, CPU of the trainer", value=busy, unit="s")
            yield Figure(bench="starts", name=name, value=megabytes, unit="MB", target="< 200" if groups else "")


def _settings(servers: str, namespace: str) -> Settings:
    return Settings.model_validate(
        {"namespace": namespace, "bootstrap_servers": servers, "topics": {"partitions": PARTITIONS}}
    )


async def _write(settings: Settings, groups: int) -> None:
    """A run with so many ended groups, the newest of which are in no chunk."""
    connection = await connect(settings)
    await create_topics(connection, settings)
    await declare(connection, settings)
    run, policy = settings.run_id, Policy(0, STEP)
    async with Writer(connection) as writer:
        await writer.send(timeline_started(0, None, 0, run=run, source=TRAINER_SOURCE, now=0))
        await writer.send(policy_published(policy, run=run, source=TRAINER_SOURCE, now=0, uri="s3://w", digest=None))
        if groups:
            share = groups // PARTITIONS + 1
            marks = tuple([await _partition(writer, number, share) for number in range(PARTITIONS)])
            closed = Watermarks(timeline=0, step=STEP, partitions=marks)
            await writer.send(step_closed(closed, source=TRAINER_SOURCE, now=0))


async def _partition(writer: Writer, number: int, groups: int) -> PartitionMarks:
    """The partition is empty and nobody else writes to it, so records lie at 0, 1, and so on."""
    count = -(-(groups - PARTIAL) // CHUNK)
    for at in range(count):
        names = [ended_id(f"{number}.{at}.{one}") for one in range(CHUNK)]
        before = at - 1 if at else None
        await writer.send(
            ended_event(names, before, timeline=0, step=STEP, source=TRAINER_SOURCE, now=0, partition=number)
        )
        await writer.flush()  # as the last of its transaction it ends a batch
    partial = [name for one in range(2 * PARTIAL * PARTITIONS) if partition_of(name := f"{one}", PARTITIONS) == number]
    for name in partial[:PARTIAL]:
        final = GroupFinal(group=name, group_size=8, timeline=0, step=STEP, as_of=0)
        await writer.send(final_event(final, source=TRAINER_SOURCE, now=0))
    return PartitionMarks(low=0, seeds=0, events=count, chunk=count - 1, oldest_chunk=0)


def _started(settings: Settings) -> tuple[float, float, int, float]:
    """Seconds, those of CPU, ended groups that are known, megabytes."""
    told = subprocess.run(
        [sys.executable, "-m", "bench.starts", settings.model_dump_json()], check=True, stdout=subprocess.PIPE
    )
    seconds, busy, known, megabytes = orjson.loads(told.stdout)
    return seconds, busy, known, megabytes


async def _start(settings: Settings) -> tuple[float, float, int, float]:
    start, before = perf_counter(), process_time()
    async with GroupStream(settings) as stream:
        seconds, busy = perf_counter() - start, process_time() - before
        known = sum(len(assembly.endings.ids) for assembly in stream._parts.intake.assemblies.values())  # pyright: ignore[reportPrivateUsage]
    return seconds, busy, known, _most_mb()


def _most_mb() -> float:
    """The most memory that this process ever held. Where Linux tells it of the program alone: what `getrusage` says
    there begins with that of whoever started it."""
    own = Path("/proc/self/status")
    if own.exists():
        return next(int(line.split()[1]) for line in own.read_text().splitlines() if line.startswith("VmHWM")) / 1e3
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6


def main() -> None:
    """Start once, as the child of a measurement."""
    sys.stdout.buffer.write(orjson.dumps(asyncio.run(_start(Settings.model_validate_json(sys.argv[1])))))


if __name__ == "__main__":
    main()
