"""The pool of a shard: draws a second, memory of a source, and what flows through.

Guarantees: draws are those of a service (`CandidateSampler`), each with its number and its offsets, and every one takes
its candidate out. Beside them on the same pool stands the rule as it is written, a list of all that may be drawn, made
anew for each batch of draws. The fastest batch counts (`timing`). Sources are read from the bytes of their rows. Leaves
out: Kafka, rendering, and groups.
"""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterable
from time import perf_counter

from bench.index_rows import row
from bench.report import Figure
from rolloutlog.buffer.folding.fold import Fold
from rolloutlog.buffer.index.rollout_row import RolloutRow
from rolloutlog.buffer.index.row_codec import decode, encode
from rolloutlog.buffer.shard.candidate_sampler import MOST_QUEUED, CandidateSampler
from rolloutlog.buffer.sources.draws import drawn_rank
from rolloutlog.contract.ids import id_of
from rolloutlog.contract.settings import Settings

NAME = "buffer"
SIZES = 4_000, 100_000, 1_000_000
GROUP = 8
BATCHES, LISTS = 100, 5
CAPACITY, TIMES = 20_000, (5, 10)


def settings_of(capacity: int) -> Settings:
    """One candidate a rollout, and bounds that bind nothing here."""
    derivations = [{"name": "go-on", "derive": {"type": "continue", "anchor": "tool-call"}}]
    buffer = {"capacity": capacity, "derivations": derivations, "ratio": 1e6}
    trainer = {"max_open": 2**31 - 1, "overcommit": True}
    return Settings.model_validate({"topics": {"partitions": 1}, "buffer": buffer, "trainer": trainer})


def filled(settings: Settings, count: int) -> Fold:
    """A fold with so many sources, and a resolved group."""
    fold = Fold.empty(0, settings.buffer)
    fold.groups.recall(1)
    fill(fold, 0, count)
    return fold


def fill(fold: Fold, first: int, count: int) -> None:
    """Sources at those offsets."""
    for offset in range(first, first + count):
        read = decode(encode(row(id_of("bench", offset // GROUP), offset % GROUP, offset)))
        if isinstance(read, RolloutRow):
            fold.pool.add(read, fold.census.skipped)


def draw(fold: Fold, settings: Settings) -> float:
    """Draws a second, as a service draws."""
    sampler, best = CandidateSampler(settings, "digest", settings.trainer), float("inf")
    for _ in range(BATCHES):
        start = perf_counter()
        sampler.sample(fold)
        best = min(best, perf_counter() - start)
        for drawn in list(sampler.queue):
            sampler.mark_emitted(drawn)
    for candidate in sampler.emitted.values():
        fold.pool.release(candidate)
    return MOST_QUEUED / best


def draw_from_a_list(fold: Fold) -> float:
    """Draws a second where each batch begins with a walk over all candidates."""
    own, best = fold.settings.derivations[0], float("inf")
    for _ in range(LISTS):
        start = perf_counter()
        live = [candidate for _, candidate in fold.pool if candidate.draws + candidate.in_flight < own.max_draws]
        for number in range(MOST_QUEUED):
            del live[drawn_rank(len(live), "0", 0, number)]
        best = min(best, perf_counter() - start)
    return MOST_QUEUED / best


def bytes_kept(times: int) -> float:
    """Memory of a pool of CAPACITY sources through which so many times as many have flowed, a source."""
    tracemalloc.start()
    fold = Fold.empty(0, settings_of(CAPACITY).buffer)
    fill(fold, 0, CAPACITY * times)
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return kept / CAPACITY


def measure() -> Iterable[Figure]:
    """Draws by the number of candidates, and memory."""
    for size in SIZES:
        settings = settings_of(size)
        fold = filled(settings, size)
        ours, plain = draw(fold, settings), draw_from_a_list(fold)
        name, target = f"draw, {size:,} candidates", ">= 100,000" if size == SIZES[-1] else ""
        yield Figure(
            bench=NAME, name=name, value=ours, unit="draws/s", target=target, ratio=ours / plain, against="a list"
        )
    once = bytes_kept(1)
    yield Figure(bench=NAME, name="a source", value=once, unit="bytes", target="< 200")
    for times in TIMES:
        flowed = bytes_kept(times)
        yield Figure(
            bench=NAME, name=f"a source, {times} times the capacity", value=flowed, unit="bytes", target="flat",
            ratio=flowed / once, against="once",
        )  # fmt: skip
