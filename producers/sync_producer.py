"""SyncRolloutProducer: the producer for code that isn't asynchronous, such as a training script or a worker process.

Guarantees: every method does what `RolloutProducer`'s does and returns when that is done; any thread may call it; one
that Ctrl-C interrupts leaves the producer usable, and `close` still stops it. What was submitted when the program
ends without `close` is flushed then. Leaves out: forks. A forked child has no thread that could send, so it raises
NotOpen: open one producer in each process, after the fork.

    with SyncRolloutProducer(namespace="run-7", bootstrap_servers="localhost:9092") as producer:
        producer.publish(Rollout.flat(prompt_ids=..., response_ids=..., logprobs=..., versions=3, ...))
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Self

from rolloutlog.contract.record.rollout import Rollout
from rolloutlog.contract.record.slot import Slot
from rolloutlog.contract.record.trajectory import Trajectory
from rolloutlog.contract.settings import Settings
from rolloutlog.contract.vocabulary import RunKind
from rolloutlog.kafka.client.loop_thread import LoopThread
from rolloutlog.producers.endings import ErrorFact
from rolloutlog.producers.producer import PATIENCE_S, RolloutProducer
from rolloutlog.producers.published import Published, Submission


class SyncRolloutProducer:
    """A `RolloutProducer` on an event loop of its own, in a thread of its own."""

    def __init__(
        self,
        settings: Settings | None = None,
        *,
        namespace: str | None = None,
        bootstrap_servers: str | None = None,
        command_config: str | None = None,
        blobs: str | None = None,
        source: str | None = None,
        patience_s: float = PATIENCE_S,
    ) -> None:
        """Arguments as of `RolloutProducer`. Opens at once; raises what its `open` raises."""
        self._producer = RolloutProducer(
            settings,
            namespace=namespace,
            bootstrap_servers=bootstrap_servers,
            command_config=command_config,
            blobs=blobs,
            source=source,
            patience_s=patience_s,
        )
        self._thread = LoopThread(
            "producer", self._producer.open, lambda: self._producer.close(self._producer.patience_s)
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def publish(self, rollout: Rollout) -> Published:
        """Write one attempt and wait until it is on the log."""
        return self._thread.wait(self._producer.publish, rollout)

    def submit(self, rollout: Rollout) -> PendingRecord:
        """Hand one attempt to the client, which batches; `flush` waits for it, or `result()` of what this returns."""
        return PendingRecord(self._thread.wait(self._producer.submit, rollout), self._thread)

    def publish_many(self, rollouts: Iterable[Rollout]) -> list[Published]:
        """Write attempts together, in order, and wait for all."""
        return self._thread.wait(self._producer.publish_many, rollouts)

    def flush(self) -> None:
        """Wait until all that was submitted is on the log. Raises the first failure since the last flush."""
        self._thread.wait(self._producer.flush)

    def abort(self, slot: Slot, partial: Trajectory | None = None) -> Published:
        """Publish an attempt as aborted; `partial` is what it sampled, from which the next attempt resumes."""
        return self._thread.wait(self._producer.abort, slot, partial)

    def fail(self, slot: Slot, error: ErrorFact, partial: Trajectory | None = None) -> Published:
        """Publish an attempt as failed: the member resolves."""
        return self._thread.wait(self._producer.fail, slot, error, partial)

    def cancel(
        self, group: str, members: Iterable[int], reason: str, *, group_size: int, kind: RunKind = RunKind.TRAIN
    ) -> Published:
        """Publish `group.cancelled`: these members get no record any more."""
        return self._thread.wait(self._producer.cancel, group, members, reason, group_size=group_size, kind=kind)

    def annotate(self, slot: Slot, facts: Mapping[str, Any]) -> Published:
        """Add late facts to an attempt, such as `{"reward": 1.0}`."""
        return self._thread.wait(self._producer.annotate, slot, facts)

    def close(self) -> None:
        """Flush and stop; again, or in a forked child, nothing. Raises the first failure since the last flush."""
        self._thread.close()


class PendingRecord:
    """A record that the client has taken; it needn't be awaited, since `flush` raises failures."""

    def __init__(self, submission: Submission, thread: LoopThread) -> None:
        self._submission, self._thread = submission, thread

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
        return self._thread.wait(self._submission.wait)
