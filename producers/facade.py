"""SyncRolloutProducer: the producer for code that isn't asynchronous, such as a training script or a worker process.

Guarantees: every method does what `RolloutProducer`'s does and returns when that is done; any thread may call it; one
that Ctrl-C interrupts leaves the producer usable, and `close` still stops it. What was submitted when the program
ends without `close` is flushed then. Leaves out: forks. A forked child has no thread that could send, so it raises
NotOpen: open one producer in each process, after the fork.

    with SyncRolloutProducer(namespace="run-7", bootstrap_servers="localhost:9092") as producer:
        producer.publish(Rollout.flat(prompt_ids=..., response_ids=..., logprobs=..., versions=3, ...))
"""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import Any, Self, TypeVar

from rolloutlog.contract.errors import NotOpen
from rolloutlog.contract.rollout import Rollout
from rolloutlog.contract.settings import Settings
from rolloutlog.contract.slot import Slot
from rolloutlog.contract.trajectory import Trajectory
from rolloutlog.contract.vocabulary import RunKind
from rolloutlog.kafka.failures import STOP_S
from rolloutlog.producers.endings import ErrorFact
from rolloutlog.producers.producer import PATIENCE_S, RolloutProducer
from rolloutlog.producers.published import Published, Submission

T = TypeVar("T")


class SyncRolloutProducer:
    """A `RolloutProducer` on an event loop of its own, in a thread of its own."""

    def __init__(
        self, settings: Settings | None = None, *, namespace: str | None = None, bootstrap_servers: str | None = None,
        command_config: str | None = None, blobs: str | None = None, source: str | None = None,
        patience_s: float = PATIENCE_S,
    ) -> None:  # fmt: skip
        """Arguments as of `RolloutProducer`. Opens at once; raises what its `open` raises."""
        self._producer = RolloutProducer(
            settings, namespace=namespace, bootstrap_servers=bootstrap_servers, command_config=command_config,
            blobs=blobs, source=source, patience_s=patience_s,
        )  # fmt: skip
        self._loop = asyncio.new_event_loop()
        self._process = os.getpid()
        self._closing = threading.Lock()
        self._thread = threading.Thread(target=self._loop.run_forever, name="rolloutlog-producer", daemon=True)
        self._thread.start()
        try:
            self._wait(self._producer.open())
        except BaseException:
            self._stop()
            raise
        atexit.register(self.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def publish(self, rollout: Rollout) -> Published:
        """Write one attempt and wait until it is on the log."""
        return self._wait(self._producer.publish(rollout))

    def submit(self, rollout: Rollout) -> Pending:
        """Hand one attempt to the client, which batches; `flush` waits for it, or `result()` of what this returns."""
        return Pending(self._wait(self._producer.submit(rollout)), self._wait)

    def publish_many(self, rollouts: Iterable[Rollout]) -> list[Published]:
        """Write attempts together, in order, and wait for all."""
        return self._wait(self._producer.publish_many(rollouts))

    def flush(self) -> None:
        """Wait until all that was submitted is on the log. Raises the first failure since the last flush."""
        self._wait(self._producer.flush())

    def abort(self, slot: Slot, partial: Trajectory | None = None) -> Published:
        """Say that an attempt was given up; `partial` is what it sampled."""
        return self._wait(self._producer.abort(slot, partial))

    def fail(self, slot: Slot, error: ErrorFact, partial: Trajectory | None = None) -> Published:
        """Say that an attempt broke: the member ends as failed."""
        return self._wait(self._producer.fail(slot, error, partial))

    def cancel(
        self, group: str, members: Iterable[int], reason: str, *, group_size: int, kind: RunKind = RunKind.TRAIN
    ) -> Published:
        """Say that these members of a group get no record any more."""
        return self._wait(self._producer.cancel(group, members, reason, group_size=group_size, kind=kind))

    def annotate(self, slot: Slot, facts: Mapping[str, Any]) -> Published:
        """Add late facts to an attempt, such as `{"reward": 1.0}`."""
        return self._wait(self._producer.annotate(slot, facts))

    def close(self) -> None:
        """Flush and stop; again, or in a forked child, nothing. Raises the first failure since the last flush."""
        if os.getpid() != self._process:
            return
        with self._closing:
            if not self._thread.is_alive():
                return
            atexit.unregister(self.close)
            try:
                self._wait(self._producer.close(self._producer.patience_s))
            finally:
                self._stop()

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of `work` on the loop; an interrupt of the waiting thread cancels it there."""
        if os.getpid() != self._process or not self._thread.is_alive():
            work.close()
            raise NotOpen("this producer is closed, or was opened before a fork")
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def _stop(self) -> None:
        """End the thread, once what an interrupt cancelled has put its things away."""
        try:
            asyncio.run_coroutine_threadsafe(_others(), self._loop).result()
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()


class Pending:
    """A record that the client has taken; nobody need look at it, `flush` tells of failures."""

    def __init__(self, submission: Submission, wait: Callable[[Coroutine[Any, Any, Published]], Published]) -> None:
        self._submission, self._wait = submission, wait

    @property
    def event_id(self) -> str:
        """Id of the event."""
        return self._submission.event_id

    @property
    def done(self) -> bool:
        """True once it is on the log, or failed."""
        return self._submission.done

    def result(self) -> Published:
        """Wait for its handle. Raises BrokerUnreachable, ClientFailed, NotAllowed."""
        return self._wait(self._submission.wait())


async def _others() -> None:
    """Wait a bounded time for the loop's other tasks."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    if others:
        await asyncio.wait(others, timeout=STOP_S + 1)
