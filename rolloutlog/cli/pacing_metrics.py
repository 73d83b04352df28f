"""Numbers of a feeder, a worker and a buffer for `--metrics-port`: what they wrote, what is open, and why nothing is
emitted or taken (design/commands#metrics).

Guarantees: they are looked at when they are asked for. Leaves out: serving them (`metrics_port`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rolloutlog.cli.metrics_port import Metrics

if TYPE_CHECKING:
    from rolloutlog.kafka.loop.partition_loop import PartitionLoop
    from rolloutlog.producers.feeding.seed_feeder import SeedFeeder
    from rolloutlog.producers.workers.rollout_worker import Worker


def tell_feeder(metrics: Metrics, feeder: SeedFeeder) -> None:
    """How a feeder stands; of `feed_lacks` one is 1 where nothing is fed."""
    from rolloutlog.producers.feeding.fresh_room import FeedLack

    room = feeder.room
    metrics.set("feed_seeds_total", feeder.emitted)
    metrics.set("feed_open_groups", room.open, "run")
    metrics.set("feed_open_groups", room.own_open, "own")
    metrics.set("feed_open_groups_most", room.most, "run")
    metrics.set("feed_open_groups_most", room.own_most, "own")
    for lack in FeedLack:
        metrics.set("feed_lacks", float(feeder.lack is lack), lack)


def tell_worker(metrics: Metrics, worker: Worker | None, most: int) -> None:
    """How a worker of at most so many members stands, None before its engine has weights; of `worker_lacks` one is 1
    where it takes no seed."""
    from rolloutlog.producers.workers.rollout_worker import WorkerLack

    metrics.set("worker_members_most", most)
    metrics.set("worker_members", 0 if worker is None else worker.running)
    if worker is not None:
        for ending, count in worker.endings.items():
            metrics.set("worker_members_by_ending_total", count, ending)
    found = WorkerLack.WEIGHTS if worker is None else worker.lack
    for lack in WorkerLack:
        metrics.set("worker_lacks", float(found is lack), lack)


def tell_buffer(metrics: Metrics, loop: PartitionLoop) -> None:
    """How a member of the buffer stands; `buffer_lacks` are its shards that derive nothing."""
    from rolloutlog.buffer.shard.candidate_sampler import DrawLack
    from rolloutlog.consumers.empty_buffer import lacks_of, shards_of

    shards = shards_of(loop)
    lacks = lacks_of(shards)
    metrics.set("buffer_events_total", loop.totals.events)
    metrics.set("buffer_transactions_total", loop.totals.commits)
    metrics.set("buffer_shards", len(shards))
    metrics.set("buffer_candidates", sum(shard.fold.pool.size for shard in shards))
    metrics.set("buffer_open_groups", sum(len(shard.fold.groups.opened) for shard in shards))
    metrics.set("buffer_open_derived_groups", sum(shard.fold.groups.open_derived for shard in shards))
    for lack in DrawLack:
        metrics.set("buffer_lacks", lacks[lack], lack)
