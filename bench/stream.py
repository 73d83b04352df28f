"""The group stream: masks, groups judged and drawn, open groups in memory, and the wait for a last member.

Guarantees: every figure stands beside its target, in one run on one core and one embedded broker; masks beside the same
masks as Python lists, made token by token. Leaves out: a network, tensors, and starts (`bench.starts`).
"""

from __future__ import annotations

import asyncio
import gc
import resource
import sys
import tracemalloc
from collections.abc import Iterable, Iterator
from random import Random
from time import perf_counter, process_time
from typing import Any

import numpy as np

from bench.group_events import SIZE, Reader, events_of, likenesses, records
from bench.report import Figure
from bench.timing import microseconds
from rolloutlog.broker import EmbeddedKafka
from rolloutlog.contract.events.event import Outgoing
from rolloutlog.contract.ids import id_of
from rolloutlog.contract.policies import History, Policy
from rolloutlog.contract.record.rollout import Rollout
from rolloutlog.contract.record.segments import Runs
from rolloutlog.contract.settings import Settings
from rolloutlog.kafka.client.admin import create_topics
from rolloutlog.kafka.client.connection import connect
from rolloutlog.kafka.run_record import declare
from rolloutlog.producers.producer import RolloutProducer
from rolloutlog.trainer.staleness.mask_runs import mask_of
from rolloutlog.trainer.staleness.rule import Rule, judge
from rolloutlog.trainer.staleness.verdicts import MemberTokens
from rolloutlog.trainer.stream.group_stream import GroupStream

NAME = "stream"
TOKENS, SEGMENT, MEMBERS = 1 << 20, 512, 32
GROUPS, OPEN = 400, 100_000
POLL = 1600
"""Records of these that a poll brings (`rolloutlog.kafka.read.tail.POLL_BYTES`)."""
WAITS, PAUSE_S = 200, 0.6
BUDGET, LARGE = 16 << 20, 32_768
"""Byte budget of the stream whose memory is watched, and tokens of its records, of 300 KB each."""


def measure() -> Iterable[Figure]:
    """All figures."""
    yield from _masks()
    yield from _groups()
    yield from _open_groups()
    with EmbeddedKafka(fast_start=False) as broker:
        yield from asyncio.run(_on_a_broker(broker.bootstrap_servers))


def _masks() -> Iterator[Figure]:
    """A million response tokens of 32 members, with and without a producer's own mask."""
    random = np.random.default_rng(0)
    each = TOKENS // MEMBERS
    own = np.arange(each) % 256 >= 24  # as tool results leave holes
    members, masked = ([_member(number, each, mask, random) for number in range(MEMBERS)] for mask in (None, own))
    known, rule = History(), Rule(token=5)
    known.start(0, None, 0)
    runs = [(member.runs.versions.tolist(), member.runs.lengths.tolist()) for member in members]
    times = microseconds(
        {
            "by segments": lambda: _mask(members, known, rule),
            "by segments, and a mask of the producer": lambda: _mask(masked, known, rule),
            "by a list": lambda: [
                10 - v - 1 < 5 for versions, lengths in runs for v, n in zip(versions, lengths, strict=True)
                for _ in range(n)
            ],
        },
        rounds=20,
    )  # fmt: skip
    ratio = times["by a list"] / times["by segments"]
    figure = Figure(
        bench=NAME, name="masks", value=TOKENS / times["by segments"] * 1e6, unit="tokens/s",
        target=">= 1e9, >= 40 times a list", ratio=ratio, against="a per-token list",
    )  # fmt: skip
    yield figure
    theirs = times["by segments, and a mask of the producer"]
    yield Figure(
        bench=NAME, name="masks, the producer's own too", value=TOKENS / theirs * 1e6, unit="tokens/s",
        ratio=times["by a list"] / theirs, against="a per-token list",
    )  # fmt: skip


def _member(number: int, tokens: int, mask: Any, random: np.random.Generator) -> MemberTokens:
    count = tokens // SEGMENT
    versions = random.integers(0, 10, count).astype(np.int32)
    runs = Runs(np.zeros(count, np.int32), versions, np.full(count, SEGMENT, np.int64))
    return MemberTokens(number, 1, tokens, runs, mask)


def _mask(members: list[MemberTokens], known: History, rule: Rule) -> Any:
    """Judge them, and make one mask of all their tokens."""
    verdicts = judge(members, 10, known, rule).members
    starts = np.arange(len(members)) * verdicts[0].response_tokens
    counts = [len(verdict.mask_runs) for verdict in verdicts]
    spans = np.concatenate([verdict.mask_runs for verdict in verdicts])
    spans[:, 0] += np.repeat(starts, counts)
    return mask_of(spans, len(members) * verdicts[0].response_tokens)


def _groups() -> Iterator[Figure]:
    """Groups of 8 of 1,520 tokens each, as fast as one core takes them in, judges and draws them."""
    outgoing = [one for number in range(GROUPS) for one in records(id_of("bench", number), range(SIZE))]
    headers, values = list[float](), list[float]()
    for _ in range(10):
        reader = Reader()
        gc.collect()
        folding = sum(_folded(reader, outgoing[at : at + POLL], at) for at in range(0, len(outgoing), POLL))
        start = process_time()
        reader.read_values()
        read = process_time()
        drawn = reader.draw(SIZE)
        end = process_time()
        if drawn != GROUPS:
            raise RuntimeError(f"{drawn} of {GROUPS} groups were drawn")
        headers.append(folding + end - read)
        values.append(folding + end - start)
    yield Figure(
        bench=NAME, name="groups judged and drawn, no value read", value=GROUPS / min(headers), unit="groups/s",
        target=">= 3000",
    )  # fmt: skip
    yield Figure(bench=NAME, name="groups judged and drawn", value=GROUPS / min(values), unit="groups/s")


def _folded(reader: Reader, outgoing: list[Outgoing], first: int) -> float:
    """Seconds to take in what a poll brings, which has just been read."""
    events = events_of(outgoing, first)
    start = process_time()
    reader.fold(events)
    return process_time() - start


def _open_groups() -> Iterator[Figure]:
    """Memory of groups that wait for members, payloads not counted."""
    (one,) = records(id_of("bench"), [0])
    for members in (1, SIZE // 2, SIZE - 1):
        reader = Reader()
        gc.collect()
        tracemalloc.start()
        some = OPEN // 20  # each costs the same
        reader.fold(likenesses(one, some, members), keep=False)
        gc.collect()
        held, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        known = sum(len(assembly.groups) for assembly in reader.assemblies.values())
        if known != some:
            raise RuntimeError(f"{known} of {some} groups are open")
        yield Figure(
            bench=NAME, name=f"{OPEN} open groups with {members} of {SIZE} members",
            value=held / some * OPEN / 1e6, unit="MB", target="< 300",
        )  # fmt: skip


async def _on_a_broker(servers: str) -> list[Figure]:
    return [*await _last_members(servers), *await _memory(servers)]


def _settings(servers: str, name: str, **trainer: Any) -> Settings:
    return Settings.model_validate({"namespace": name, "bootstrap_servers": servers, "trainer": trainer})


async def _declared(settings: Settings) -> None:
    connection = await connect(settings)
    await create_topics(connection, settings)
    await declare(connection, settings)


async def _last_members(servers: str) -> list[Figure]:
    """How long after a group's last member was sent the batch is there, at any moment of the trainer's fetches; and how
    long after the broker has acknowledged it, for what comes before is the producer's and the broker's."""
    settings, random, waits = (
        _settings(servers, "waits", batch_groups=1, staleness={"max_staleness": None}),
        Random(1),
        list[tuple[float, float]](),
    )
    await _declared(settings)
    async with GroupStream(settings) as stream, RolloutProducer(settings, source="/bench") as producer:
        batches = stream.batches()
        for number in range(WAITS):
            group = id_of("wait", number)
            for member in range(SIZE - 1):
                await producer.publish(_small(group, member))
            drawing = asyncio.ensure_future(anext(batches))
            await asyncio.sleep(random.random() * PAUSE_S)
            start = perf_counter()
            await producer.publish(_small(group, SIZE - 1))
            acknowledged = perf_counter()
            batch = await drawing
            drawn = perf_counter()
            waits.append((drawn - start, drawn - acknowledged))
            await stream.trained(batch)
    return [*_late("sent", [sent for sent, _ in waits]), *_late("acknowledged", [known for _, known in waits])]


def _late(since: str, times: list[float]) -> Iterator[Figure]:
    middle, late = (sorted(times)[len(times) * part // 100 - 1] * 1e3 for part in (50, 99))
    yield Figure(bench=NAME, name=f"last member {since} to drawn, p50", value=middle, unit="ms")
    yield Figure(bench=NAME, name=f"last member {since} to drawn, p99", value=late, unit="ms", target="<= 50")


def _small(group: str, member: int, tokens: int = 64, version: int = 0) -> Rollout:
    random = np.random.default_rng(member)
    return Rollout.flat(
        prompt_ids=[1, 2, 3], response_ids=random.integers(0, 150_000, tokens, np.int32),
        logprobs=-random.exponential(0.7, tokens).astype(np.float32), versions=Policy(0, version), reward=float(member),
        group=group, member=member, group_size=SIZE,
    )  # fmt: skip


async def _memory(servers: str) -> list[Figure]:
    """The most memory while open groups of ten times the byte budget are read, beside five times: by then payloads are
    kept no more, and what lies fetched has reached its bound."""
    settings = _settings(servers, "memory", buffer_bytes=BUDGET)
    await _declared(settings)
    async with GroupStream(settings) as stream, RolloutProducer(settings, source="/bench") as producer:
        written, peaks = 0, dict[int, float]()
        for times in (5, 10):
            while written < times * BUDGET:
                group = id_of("large", written)
                for member in range(SIZE - 1):
                    made = _small(group, member, LARGE)
                    await producer.submit(made)
                    written += 9 * LARGE
            await producer.flush()
            async for _ in stream.batches(drain=True):
                raise RuntimeError("a group that lacks a member was drawn")
            peaks[times] = _most_mb()
    return [
        Figure(
            bench=NAME, name="memory at 10 times the byte budget", value=peaks[10], unit="MB at most",
            target="ratio about 1", ratio=peaks[10] / peaks[5], against="at 5 times",
        )
    ]  # fmt: skip


def _most_mb() -> float:
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most / (1e6 if sys.platform == "darwin" else 1e3)
