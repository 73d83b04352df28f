"""What a record costs the process that follows a log, when it reads it itself and when readers do.

Guarantees: `Tail` gives the same events in both; each is a run of its own over the same records, once its readers are
up; what a reader costs is all of its CPU time, less that of one which is closed as soon as it is up. Leaves out: what
is done with the events (`bench.trainer`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from resource import RUSAGE_CHILDREN, getrusage
from time import perf_counter, process_time
from typing import NamedTuple

from bench.report import Figure
from bench.trainer import MEMBERS, filled, settings_of
from rolloutlog.broker import EmbeddedKafka
from rolloutlog.contract.topics import Topic
from rolloutlog.kafka.client.connection import Connection
from rolloutlog.kafka.read.tail import Tail

NAME = "reader_processes"
GROUPS, ROUNDS, READERS = 1_024, 5, (0, 1, 2)


class Spent(NamedTuple):
    """Seconds of a wall clock, of this process's CPU, and of its readers'."""

    wall: float
    own: float
    readers: float


def measure() -> Iterable[Figure]:
    """By number of readers: records a second, and CPU time of a record."""
    with EmbeddedKafka(fast_start=False) as broker:
        settings = settings_of(broker.bootstrap_servers, "readers")
        connection, records = asyncio.run(filled(settings, GROUPS)), GROUPS * MEMBERS
        for readers in READERS:
            best = Spent(*map(min, zip(*(_spent(connection, records, readers) for _ in range(ROUNDS)), strict=True)))
            idle = min(_spent(connection, 0, readers).readers for _ in range(2)) if readers else 0.0
            name = f"{readers} readers"
            yield Figure(bench=NAME, name=name, value=records / best.wall, unit="records/s")
            for part, seconds in (("this process", best.own), ("the readers", best.readers - idle)):
                us = 1e6 * seconds / records
                yield Figure(bench=NAME, name=f"{name}, CPU of {part}", value=us, unit="us a record")


def _spent(connection: Connection, records: int, readers: int) -> Spent:
    """To read so many."""
    before = _cpu_of_children()
    wall, own = asyncio.run(_read(connection, records, readers))
    return Spent(wall, own, _cpu_of_children() - before)


async def _read(connection: Connection, records: int, readers: int) -> tuple[float, float]:
    starts = {(Topic.ROLLOUTS, number): 0 for number in range(connection.partitions or 6)}
    async with Tail(connection, starts, readers=readers) as tail:
        wall, own, left = perf_counter(), process_time(), records
        while left > 0:
            left -= len(await tail.poll())
        return perf_counter() - wall, process_time() - own


def _cpu_of_children() -> float:
    used = getrusage(RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
