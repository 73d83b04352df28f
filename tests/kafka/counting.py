"""The trivial shard: counts events per key, and emits a seed at every fifth. Its rows say all that a test needs.

Run as a program it is one worker process of the group: `python counting.py BOOTSTRAP NAMESPACE SESSION_MS`.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
from collections import Counter
from collections.abc import Mapping, Sequence

import orjson

from rolloutlog.contract.events.event import Event, Outgoing, outgoing
from rolloutlog.contract.ids import id_of
from rolloutlog.contract.topics import Names, Topic
from rolloutlog.contract.vocabulary import EventType
from rolloutlog.kafka.client.connection import Connection
from rolloutlog.kafka.client.quiet import quiet_clients
from rolloutlog.kafka.loop.handler import Checkpoint, Inputs, Moment
from rolloutlog.kafka.loop.loop_options import LoopOptions
from rolloutlog.kafka.loop.partition_loop import PartitionLoop

EVERY = 5
POISON = b"poison"


class CountingShard:
    """Counts per input topic and key; a row per event says where it lay and the count that it made."""

    def __init__(self, partition: int) -> None:
        self.partition = partition
        self.counts: Counter[tuple[str, str]] = Counter()
        self.restored = 0
        self.moments: list[Moment] = []
        self.row_offsets: list[int] = []
        self._unflushed: list[Outgoing] = []

    def begin(self, first_row: int) -> None:
        pass

    def records_deleted(self, firsts: Inputs) -> None:
        pass

    def recall(self, row: Event) -> Checkpoint:
        body = orjson.loads(row.value or b"")
        return Checkpoint({Topic(topic): offset for topic, offset in body["inputs"].items()})

    def recall_chunk(self, row: Event) -> int | None:
        raise AssertionError("it writes none")

    def restore(self, rows: Sequence[Event]) -> None:
        for row in rows:
            if row.headers.type == EventType.ROLLOUT_INDEXED:
                body = orjson.loads(row.value or b"")
                self.counts[body["topic"], body["key"]] = body["count"]
                self.restored += 1

    async def fold_source(self, moment: Moment) -> int | None:
        """Nothing comes before the inputs."""
        return None

    async def fold(self, events: Sequence[Event], moment: Moment) -> None:
        self.moments.append(moment)
        for event in events:
            if event.value == POISON:
                raise RuntimeError("the shard has a bug")
            key = (event.key or b"").decode()
            self.counts[event.topic, key] += 1
            count = self.counts[event.topic, key]
            body = {"topic": event.topic, "offset": event.offset, "key": key, "count": count}
            event_id = id_of(event.topic, self.partition, event.offset)
            self._unflushed.append(self._row(EventType.ROLLOUT_INDEXED, event_id, body, moment))
            if event.topic == Topic.ROLLOUTS and count % EVERY == 0:
                self._unflushed.append(self._seed(key, count, moment))

    async def flush(self, inputs: Inputs, moment: Moment) -> Sequence[Outgoing]:
        if not self._unflushed:
            return []
        state = self._row(
            EventType.SHARD_STATE,
            f"shard/{self.partition}",
            {"inputs": {str(topic): offset for topic, offset in inputs.items()}},
            moment,
        )
        records, self._unflushed = [*self._unflushed, state], []
        return records

    def committed(self, offsets: Sequence[int]) -> None:
        self.row_offsets.append(offsets[-1])

    def _row(self, kind: EventType, event_id: str, body: Mapping[str, object], moment: Moment) -> Outgoing:
        return outgoing(
            kind, Topic.ROLLOUT_INDEX, key=event_id, event_id=event_id, source="/test", value=orjson.dumps(body),
            now=moment.now, partition=self.partition,
        )  # fmt: skip

    def _seed(self, key: str, count: int, moment: Moment) -> Outgoing:
        return outgoing(
            EventType.SEED_EMITTED, Topic.SEEDS, key=key, event_id=id_of(key, count), source="/test", value=b"{}",
            now=moment.now, partition=self.partition,
        )  # fmt: skip


async def work(bootstrap: str, namespace: str, session_ms: int) -> None:
    """One member of the group until SIGTERM."""
    loop = PartitionLoop(
        Connection(bootstrap, Names(namespace)), CountingShard, LoopOptions(session_timeout_ms=session_ms)
    )
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, loop.stop)
    await loop.run()


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(process)d %(message)s")
    quiet_clients()
    asyncio.run(work(sys.argv[1], sys.argv[2], int(sys.argv[3])))
