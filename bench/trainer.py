"""From the log to packed tensors, as a training loop gets them, beside a bare consumer of the same records.

Guarantees: groups are 8 members of 1,024 sampled tokens, no two alike, as `Rollout.flat` makes them; *ours* is the loop
of the README, whose packs are made in the training thread while the next batch is drawn in another, with readers or
without; CPU is that of the trainer's process. All read such a log of one broker, one right after the other, and a ratio
is the median over rounds; each has a log of its own, since a trained group isn't drawn again. Stages are CPU time of a
loop without readers that does one thing after the other, all of its threads together. Leaves out: a network, and
training; the broker shares the machine.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from statistics import median
from time import perf_counter, process_time
from typing import Any

import numpy as np
import psutil
import torch

from bench.buffer_loop import BARE, bare
from bench.record import NOW, SOURCE
from bench.report import Figure
from bench.stages import OTHER, Point, staged
from rolloutlog.broker import EmbeddedKafka
from rolloutlog.contract.events import sound_values
from rolloutlog.contract.events.event import Outgoing
from rolloutlog.contract.events.policy_versions import policy_published
from rolloutlog.contract.ids import id_of
from rolloutlog.contract.policies import Policy
from rolloutlog.contract.record.rollout import Rollout
from rolloutlog.contract.settings import Settings
from rolloutlog.kafka.client.admin import create_topics
from rolloutlog.kafka.client.connection import Connection, connect
from rolloutlog.kafka.read.tail import Tail
from rolloutlog.kafka.run_record import declare
from rolloutlog.kafka.write.writing import Writer
from rolloutlog.producers.checked_record import checked_rollout
from rolloutlog.trainer.batches import micro_batches, samples, tensors
from rolloutlog.trainer.batches.column_memory import ColumnMemory
from rolloutlog.trainer.batches.tensors import PackedBatch
from rolloutlog.trainer.dispatch.batch import Batch
from rolloutlog.trainer.dispatch.decision import DispatchPolicy
from rolloutlog.trainer.dispatch.sampler import Sampler
from rolloutlog.trainer.groups.assembly import Assembly
from rolloutlog.trainer.loop.sync_group_stream import SyncGroupStream
from rolloutlog.trainer.stream import intake, loading
from rolloutlog.trainer.stream.group_stream import GroupStream
from rolloutlog.trainer.stream.starting import Start
from rolloutlog.trainer.stream.step_recorder import StepRecorder

NAME, OURS = "trainer", "log to packed tensors"
MEMBERS, PROMPT, TOKENS, SWITCH = 8, 128, 1_024, 600
GROUPS, BATCH, ROUNDS, PACK = 768, 64, 3, 32_768
BUDGET, GROUP_BYTES = 8 << 20, 82_000
"""Byte budget of the stream whose memory is watched, and about how large a group is."""
STAGES: tuple[Point, ...] = (
    (Tail, "poll", "fetch"),
    (intake, "announced", "headers"),
    (sound_values, "digest_of", "digest"),
    (loading, "arrivals", "decode, validate"),
    (DispatchPolicy, "decide", "judge"),
    (Assembly, "fold", "assemble"),
    (Sampler, "settle", "assemble"),
    (Sampler, "pick", "assemble"),
    (StepRecorder, "_write_step", "tell"),
    (samples, "samples_of", "pack"),
    (micro_batches, "micro_batches", "pack"),
    (tensors.PackedBatch, "each", "pack"),
)
READING = ("fetch", "digest", "decode, validate")
"""Stages that need nothing but a partition and its records; with readers `fetch` is done in other processes."""
READERS = (0, 1, 2)


@dataclass(slots=True)
class Took:
    """Seconds of a wall clock, and of this process's CPU."""

    wall: float
    cpu: float


def measure() -> Iterable[Figure]:
    """Groups a second, what they cost by stage, and the memory of a log of ten times the byte budget."""
    torch.set_num_threads(1)
    with EmbeddedKafka(fast_start=False) as broker:
        yield from _rates(broker.bootstrap_servers)
        yield from _split(broker.bootstrap_servers)
        yield from _memory(broker.bootstrap_servers)


def _rates(servers: str) -> Iterator[Figure]:
    theirs, mine = list[Took](), {readers: list[Took]() for readers in READERS}
    for number in range(ROUNDS + 1):
        for readers in READERS:
            settings = settings_of(servers, f"round-{number}-{readers}")
            connection = asyncio.run(filled(settings, GROUPS))
            if not readers:
                theirs.append(_took(lambda c=connection: asyncio.run(bare(c, GROUPS * MEMBERS))))
            mine[readers].append(_ours(settings_of(servers, settings.namespace, readers=readers), GROUPS))
    del theirs[0]  # the first round warms up
    yield Figure(bench=NAME, name=BARE, value=GROUPS / median(took.wall for took in theirs), unit="groups/s")
    for readers, (_, *took) in mine.items():
        for name, of in (("", _wall), (", by CPU", _cpu)):
            ratio = median(of(bare) / of(own) for bare, own in zip(theirs, took, strict=True))
            target = ">= 1000 on two quiet cores, >= 0.4" if not readers and not name else ""
            yield Figure(
                bench=NAME, name=OURS + f", {readers} readers" * (readers > 0) + name,
                value=GROUPS / median(map(of, took)), unit="groups/s", target=target, ratio=ratio,
                against=BARE + name,
            )  # fmt: skip


def _wall(took: Took) -> float:
    return took.wall


def _cpu(took: Took) -> float:
    return took.cpu


def _took(work: Callable[[], object]) -> Took:
    start, cpu = perf_counter(), process_time()
    work()
    return Took(perf_counter() - start, process_time() - cpu)


def settings_of(servers: str, namespace: str, **trainer: Any) -> Settings:
    """Settings of a run whose rollouts never grow too old."""
    said: dict[str, Any] = {"batch_groups": BATCH, "max_open": None, "staleness": {"max_staleness": 50}, **trainer}
    return Settings.model_validate({"namespace": namespace, "bootstrap_servers": servers, "trainer": said})


async def filled(settings: Settings, groups: int) -> Connection:
    """Topics with so many whole groups, and the policies that sampled them."""
    connection = await connect(settings)
    await create_topics(connection, settings)
    await declare(connection, settings)
    async with GroupStream(settings, Start(weights="file:///w")):
        pass  # which starts timeline 0
    async with Writer(connection) as writer:
        for version in (1, 2):
            await writer.send(policy_published(Policy(0, version), run=settings.run_id, source=SOURCE, now=NOW))
        for number in range(groups):
            for one in group(number):
                await writer.send(one)
    return connection


@cache
def group(number: int) -> list[Outgoing]:
    """The records of a group."""
    random = np.random.default_rng(number)
    prompt = random.integers(0, 150_000, PROMPT, np.int32)
    return [
        checked_rollout(
            Rollout.flat(
                prompt_ids=prompt,
                response_ids=random.integers(0, 150_000, TOKENS, np.int32),
                logprobs=-random.exponential(0.7, TOKENS).astype(np.float32),
                versions=[1] * SWITCH + [2] * (TOKENS - SWITCH),
                reward=float(random.random()),
                temperature=1.0,
                group=id_of("bench", number),
                member=member,
                group_size=MEMBERS,
            ),
            source=SOURCE,
            now=NOW,
        )
        for member in range(MEMBERS)
    ]


def _ours(settings: Settings, groups: int) -> Took:
    """From the first draw to the last pack of a step-by-step loop."""
    with SyncGroupStream(settings, Start(step=3)) as stream:
        return _took(lambda: _trained(stream, groups))


def _trained(stream: SyncGroupStream, groups: int) -> None:
    left = groups * MEMBERS * TOKENS
    for batch in stream.batches(drain=True):
        left -= sum(packed.trainable_tokens for packed in batch.packs(PACK))
        if batch.publishes:
            batch.trained(publish=lambda: ("file:///w", None))
    if left:
        raise RuntimeError(f"{left} tokens weren't trained")


def _split(servers: str) -> Iterator[Figure]:
    """CPU time by stage, one thing after the other in one thread."""
    settings = settings_of(servers, "stages")
    asyncio.run(filled(settings, GROUPS))
    with staged(STAGES, process_time) as spent:
        took = asyncio.run(_in_turn(settings))
    spent[OTHER] = took - sum(spent.values())
    for stage, seconds in spent.items():
        yield Figure(
            bench=NAME, name=f"stage: {stage}", value=1e6 * seconds / GROUPS / MEMBERS, unit="us a record",
            ratio=seconds / took, against="all",
        )  # fmt: skip
    left = took - sum(spent[stage] for stage in READING)
    yield Figure(
        bench=NAME, name="all but reading, which other processes could do", value=1e6 * left / GROUPS / MEMBERS,
        unit="us a record", ratio=left / took, against="all",
    )  # fmt: skip


async def _in_turn(settings: Settings) -> float:
    async with GroupStream(settings, Start(step=3)) as stream:
        start = process_time()
        memory = ColumnMemory()
        async for batch in stream.batches(drain=True):
            _packed(batch, memory)
            await stream.trained(batch, publish="file:///w")
        return process_time() - start


def _packed(batch: Batch, memory: ColumnMemory | None = None) -> list[PackedBatch]:
    (packs,) = micro_batches.micro_batches(samples.samples_of(batch), PACK)
    return PackedBatch.each(packs, memory)


def _memory(servers: str) -> Iterator[Figure]:
    """The most memory while a log of ten times the byte budget is trained, beside the first half of it."""
    groups, process, seen = 10 * BUDGET // GROUP_BYTES, psutil.Process(), list[float]()
    settings = settings_of(servers, "memory", buffer_bytes=BUDGET, batch_groups=16)
    asyncio.run(filled(settings, groups))
    with SyncGroupStream(settings, Start(step=3)) as stream:
        for batch in stream.batches(drain=True):
            batch.packs(PACK)
            seen.append(process.memory_info().rss / 1e6)
            batch.trained(publish=lambda: ("file:///w", None))
    half = max(seen[: len(seen) // 2])
    yield Figure(
        bench=NAME, name="memory at 10 times the byte budget", value=max(seen), unit="MB at most",
        target="ratio about 1", ratio=max(seen) / half, against="at 5 times",
    )  # fmt: skip
