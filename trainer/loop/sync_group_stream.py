"""SyncGroupStream: the group stream for training loops that aren't asynchronous.

Guarantees: everything is done on an event loop in a thread of its own, which draws the next batch while one is trained;
an interrupt of the loop, wherever it strikes, leaves no step half told: what was told goes on and `close` waits for it,
what wasn't goes back. Leaves out: forks; open it in the process that trains.

    with SyncGroupStream(namespace="run-7", bootstrap_servers="localhost:9092") as stream:
        for batch in stream:
            tensors = pack(batch)
            ...
            batch.trained(publish=lambda: ("s3://weights/1", digest))
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from types import TracebackType
from typing import Self

from rolloutlog.contract.policies import History
from rolloutlog.contract.settings import Settings
from rolloutlog.contract.vocabulary import DropReason
from rolloutlog.kafka.client.loop_thread import LoopThread
from rolloutlog.trainer.dispatch.batch import Batch
from rolloutlog.trainer.steps.step_report import StepReport
from rolloutlog.trainer.stream.batch_iterator import BatchIterator
from rolloutlog.trainer.stream.group_stream import GroupStream
from rolloutlog.trainer.stream.starting import Start

Saved = tuple[str, str | None]
"""Where something lies, and its digest."""


class SyncGroupStream:
    """A `GroupStream` on an event loop of its own, in a thread of its own."""

    def __init__(
        self,
        settings: Settings | None = None,
        start: Start | None = None,
        *,
        namespace: str | None = None,
        bootstrap_servers: str | None = None,
        command_config: str | None = None,
    ) -> None:
        """Arguments as of `GroupStream`. Opens at once; raises what its opening raises."""
        self._stream = GroupStream(
            settings,
            start,
            namespace=namespace,
            bootstrap_servers=bootstrap_servers,
            command_config=command_config,
        )
        self._failed: type[BaseException] | None = None
        self._thread = LoopThread(
            "group stream", self._stream.__aenter__, lambda: self._stream.__aexit__(self._failed, None, None)
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, _: BaseException | None, __: TracebackType | None) -> None:
        self._failed = kind
        self.close()

    def __iter__(self) -> Iterator[TrainingBatch]:
        """As `batches()`."""
        return self.batches()

    @property
    def history(self) -> History:
        """The policies known so far."""
        return self._stream.history

    @property
    def step(self) -> int | None:
        """The next train step to draw for, which with a batch in hand may be the one after the next."""
        return self._stream.step

    def batches(self, groups: int | None = None, *, drain: bool = False) -> Iterator[TrainingBatch]:
        """As `GroupStream.batches`, with one batch drawn ahead."""
        lent = self._stream.batches(groups, drain=drain, ahead=True)
        while (batch := self._thread.wait(_next_of, lent)) is not None:
            yield TrainingBatch.of(batch, self)

    def tell(
        self,
        batch: Batch,
        *,
        publish: Saved | None = None,
        checkpoint: Saved | None = None,
        without: Mapping[str, DropReason] | None = None,
    ) -> StepReport:
        """As `GroupStream.trained`, for what lies there already."""
        weights, weights_digest = publish or (None, None)
        saved, saved_digest = checkpoint or (None, None)

        async def told() -> StepReport:
            return await self._stream.trained(
                batch,
                publish=weights,
                digest=weights_digest,
                checkpoint=saved,
                checkpoint_digest=saved_digest,
                without=without,
            )

        return self._thread.wait(told)

    def stop(self) -> None:
        """Let the iteration end at its next wait; a signal handler may call it."""
        self._stream.stop()

    def close(self) -> None:
        """Finish what is being told, and stop; again, or in a forked child, nothing."""
        self._thread.close()


@dataclass(slots=True, frozen=True)
class TrainingBatch(Batch):
    """A batch that is lent to a training loop: `trained` tells it."""

    lent: Batch = field(default_factory=lambda: Batch(None, ()), repr=False, compare=False)
    stream: SyncGroupStream | None = field(default=None, repr=False, compare=False)

    @classmethod
    def of(cls, batch: Batch, stream: SyncGroupStream) -> TrainingBatch:
        """The batch, with its stream at hand."""
        return cls(**{one.name: getattr(batch, one.name) for one in fields(batch)}, lent=batch, stream=stream)

    def trained(
        self,
        *,
        publish: Callable[[], Saved] | None = None,
        checkpoint: Callable[[], Saved] | None = None,
        without: Mapping[str, DropReason] | None = None,
    ) -> StepReport:
        """Record that it was trained; returns once that is on the log.

        `publish` writes the weights and `checkpoint` the state, before anything is on the log; each returns where it
        wrote, and a digest. Raises what `GroupStream.trained` raises.
        """
        if self.stream is None:
            raise ValueError("this batch is of no stream")
        return self.stream.tell(
            self.lent,
            publish=publish() if publish else None,
            checkpoint=checkpoint() if checkpoint else None,
            without=without,
        )


async def _next_of(batches: BatchIterator) -> Batch | None:
    return await anext(batches, None)
