"""Import of a recorded run, beside a bare `orjson.loads` of the same lines; and the memory that a gigabyte takes.

Guarantees: both read the same file from the page cache, they take turns, and a ratio is the median over rounds; the
import's time is all of it: both passes, its processes, and the producer until everything is on the log of the broker,
which shares the machine. Memory is the largest resident set of the process that imports (its parsers beside it), and of
one that reads everything back. Leaves out: a network, and a cold disk.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter

import orjson

from bench.recorded_run import longer, recorded_lines, write_run
from bench.report import Figure
from rolloutlog.broker import EmbeddedKafka
from rolloutlog.contract.settings import Settings
from rolloutlog.kafka.client.admin import create_topics
from rolloutlog.kafka.client.connection import connect
from rolloutlog.kafka.run_record import declare
from rolloutlog.producers.importing.import_service import import_runs

ROUNDS = 3
RATIO_BYTES = 256 << 20
MEMORY_BYTES = 1 << 30

_IMPORT = """
import asyncio, resource, sys
from rolloutlog.contract.settings import Settings
from rolloutlog.producers.importing.import_service import import_runs
report = asyncio.run(import_runs(Settings.model_validate_json(sys.argv[1]), [sys.argv[2]]))
for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN):
    print(resource.getrusage(who).ru_maxrss)
print(report.imported)
"""
_CONSUME = """
import asyncio, resource, sys
from rolloutlog.contract.events.validation import read_headers, read_rollout
from rolloutlog.contract.settings import Settings
from rolloutlog.contract.topics import Topic
from rolloutlog.kafka.client.connection import connect
from rolloutlog.kafka.read.reading import read_to_end
async def main():
    settings, count = Settings.model_validate_json(sys.argv[1]), 0
    connection = await connect(settings)
    for partition in range(settings.topics.partitions):
        async for events in read_to_end(connection, Topic.ROLLOUTS, partition):
            for event in events:
                read_headers(event, settings.topics.partitions)
                read_rollout(event)
                count += 1
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
    print(count)
asyncio.run(main())
"""


def measure() -> list[Figure]:
    """Megabytes a second of import and `orjson.loads`, at two lengths of a line; then the memory."""
    short = recorded_lines()
    with TemporaryDirectory() as folder, EmbeddedKafka(fast_start=False) as broker:
        run = Path(folder) / "traces.jsonl"
        figures: list[Figure] = []
        for name, lines, target in (
            ("lines of 20 KB", short, ""),
            ("lines of 300 KB", [longer(line, turns=5, tokens=7) for line in short], ">= 0.4"),
        ):
            write_run(run, lines, RATIO_BYTES)
            figures += _ratio(name, run, broker.bootstrap_servers, target)
        write_run(run, short, MEMORY_BYTES)
        figures += _memory(run, broker.bootstrap_servers)
        return figures


def _ratio(name: str, run: Path, servers: str, target: str) -> Iterable[Figure]:
    size = run.stat().st_size / 1e6
    pairs = [(size / _loads(run), size / _import(run, _ready(servers, f"{name}-{n}"))) for n in range(ROUNDS)]
    bare, ours = (median(rates) for rates in zip(*pairs, strict=True))
    yield Figure(bench="importing", name=f"orjson.loads, {name}", value=bare, unit="MB/s")
    yield Figure(
        bench="importing",
        name=f"import, {name}",
        value=ours,
        unit="MB/s",
        target=target,
        ratio=median(theirs / loads for loads, theirs in pairs),
        against="orjson.loads",
    )


def _loads(run: Path) -> float:
    start = perf_counter()
    with run.open("rb", buffering=1 << 20) as lines:
        for line in lines:
            orjson.loads(line)
    return perf_counter() - start


def _import(run: Path, settings: Settings) -> float:
    start = perf_counter()
    asyncio.run(import_runs(settings, [run]))
    return perf_counter() - start


def _memory(run: Path, servers: str) -> Iterable[Figure]:
    settings = _ready(servers, "memory")
    alone, parsers, imported = _child(_IMPORT, settings.model_dump_json(), str(run))
    consumer, consumed = _child(_CONSUME, settings.model_dump_json())
    if imported != consumed:
        raise RuntimeError(f"{imported} rollouts were imported, {consumed} consumed")
    for name, kilobytes, target in (
        ("importing 1 GB", alone, "< 300"),
        ("its largest parser", parsers, "< 300"),
        ("consuming it", consumer, "< 300"),
    ):
        yield Figure(bench="importing", name=name, value=kilobytes / 1024, unit="MiB resident", target=target)


def _ready(servers: str, name: str) -> Settings:
    """A namespace of its own, declared."""
    namespace = "".join(letter if letter.isalnum() else "-" for letter in name)
    settings = Settings.model_validate({"namespace": namespace, "bootstrap_servers": servers})

    async def body() -> None:
        connection = await connect(settings)
        await create_topics(connection, settings)
        await declare(connection, settings)

    asyncio.run(body())
    return settings


def _child(script: str, *arguments: str) -> list[int]:
    """Numbers that a process of its own prints."""
    done = subprocess.run([sys.executable, "-c", script, *arguments], check=True, capture_output=True, text=True)
    return [int(number) for number in done.stdout.split()]
