"""SyncGroupStream: the group stream for training loops that aren't asynchronous.

Guarantees: everything is done on an event loop in a thread of its own, which draws the next batch while one is trained;
an interrupt of the loop, wherever it strikes, leaves no step half told: what was told goes on and `close` waits for it,
what wasn't goes back. In a job of several ranks rank 0 alone has a Kafka client; the others get batches from it. Leaves
out: forks; open it in the process that trains.

    with SyncGroupStream(namespace="run-7", bootstrap_servers="localhost:9092") as stream:
        for batch in stream:
            for packed in batch.packs(max_tokens=32_768):
                policy_loss(model(packed), packed, batch.denominators).backward()
            ...
            batch.trained(publish=save_weights if batch.publishes else None)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, NamedTuple, Self

from rolloutlog.contract.errors import RanksDisagree
from rolloutlog.contract.events.policy_versions import SavedCheckpoint
from rolloutlog.contract.policies import History
from rolloutlog.contract.settings import Settings
from rolloutlog.kafka.client.loop_thread import LoopThread
from rolloutlog.trainer.batches.column_memory import ColumnMemory
from rolloutlog.trainer.dispatch.batch import Batch, LeftOut
from rolloutlog.trainer.groups.eval_rewards import EvalReward
from rolloutlog.trainer.groups.filters import GroupFilter
from rolloutlog.trainer.loop.job_ranks import JobRanks, ranks_of_job
from rolloutlog.trainer.loop.training_batch import Saved, SavedFile, TrainingBatch, write_and_tell
from rolloutlog.trainer.steps.step_report import StepReport
from rolloutlog.trainer.stream.batch_iterator import BatchIterator
from rolloutlog.trainer.stream.group_stream import GroupStream
from rolloutlog.trainer.stream.starting import Start


class _Lent(NamedTuple):
    """What the other ranks are told of a batch."""

    step: int | None
    publishes: bool


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
        filters: Sequence[GroupFilter] = (),
        ranks: JobRanks | None = None,
    ) -> None:
        """Arguments as of `GroupStream`. `ranks`: those of `torch.distributed` unless others are given, which all open
        it together. Opens at once; raises what its opening raises, and RanksDisagree on the other ranks.
        """
        self.ranks = ranks or ranks_of_job()
        self._filters = filters
        self._settings = Settings.of(
            settings, namespace=namespace, bootstrap_servers=bootstrap_servers, command_config=command_config
        )
        self._start = start or Start()
        self._failed: type[BaseException] | None = None
        self._memory = ColumnMemory()
        self._opened: tuple[GroupStream, LoopThread] | None = None
        self.ranks.tell(self._open)

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
        """The policies known so far. Raises RanksDisagree on ranks above 0."""
        return self._stream.history

    @property
    def resumed(self) -> SavedCheckpoint | None:
        """The checkpoint that this start went back to, on every rank; None where it went back to none."""
        return self.ranks.tell(lambda: self._stream.resumed)

    @property
    def step(self) -> int | None:
        """The next train step to draw for, which with a batch in hand may be the one after the next."""
        return self._stream.step

    def batches(
        self,
        groups: int | None = None,
        *,
        drain: bool = False,
        last_step: int | None = None,
        short_after_s: float | None = None,
    ) -> Iterator[TrainingBatch]:
        """As `GroupStream.batches`, with one batch drawn ahead; on every rank. It ends once `last_step` is told, after
        which weights are due."""
        lent = None
        if self._opened:
            lent = self._stream.batches(groups, drain=drain, ahead=True, short_after_s=short_after_s)
        drawn: list[Batch | None] = [None]

        def draw() -> _Lent | None:
            is_over = last_step is not None and self._stream.last_step >= last_step
            drawn[0] = None if is_over or lent is None else self._thread.wait(_next_of, lent)
            return None if drawn[0] is None else _Lent(drawn[0].step, self._publishes(drawn[0], last_step))

        while (said := self.ranks.tell(draw)) is not None:
            yield TrainingBatch(
                said.step, drawn[0], self.ranks, self.tell, publishes=said.publishes, memory=self._memory
            )

    def tell(
        self,
        batch: Batch,
        *,
        publish: Saved | None = None,
        checkpoint: Saved | None = None,
        without: Mapping[str, LeftOut] | None = None,
    ) -> StepReport:
        """As `GroupStream.trained`, for what lies there already; on rank 0."""
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

    def saved(
        self,
        *,
        publish: Callable[[], Saved | SavedFile] | None = None,
        checkpoint: Callable[[], Saved | SavedFile] | None = None,
    ) -> None:
        """Write and record what the last step left, once the iteration has ended: as `TrainingBatch.trained` with
        these, on every rank, and as `GroupStream.saved`."""

        def tell(weights: Saved | None, state: Saved | None) -> None:
            (uri, digest), (file, file_digest) = weights or (None, None), state or (None, None)

            async def told() -> None:
                stream = self._stream
                await stream.saved(
                    stream.last_step, publish=uri, digest=digest, checkpoint=file, checkpoint_digest=file_digest
                )

            self._thread.wait(told)

        write_and_tell(self.ranks, tell, publish=publish, checkpoint=checkpoint)

    def state_dict(self, batch: TrainingBatch | None = None) -> dict[str, Any]:
        """What a checkpoint holds of the stream, as `GroupStream.state_dict`; the same on every rank."""
        return self.ranks.tell(lambda: self._stream.state_dict(batch.batch if batch else None))

    def take_evals(self) -> dict[str, EvalReward]:
        """As `GroupStream.take_evals`; on rank 0."""

        async def taken() -> dict[str, EvalReward]:
            return self._stream.take_evals()

        return self._thread.wait(taken)

    def stop(self) -> None:
        """Let the iteration end at its next wait; a signal handler may call it. The other ranks hear of it."""
        if self._opened is not None:
            self._stream.stop()

    def close(self) -> None:
        """Finish what is being told, and stop; again, or in a forked child, nothing."""
        if self._opened is not None:
            self._thread.close()

    def _open(self) -> None:
        stream = GroupStream(self._settings, self._start, filters=self._filters)
        thread = LoopThread("group stream", stream.__aenter__, lambda: stream.__aexit__(self._failed, None, None))
        self._opened = stream, thread

    def _publishes(self, batch: Batch, last_step: int | None) -> bool:
        """Weights are due every sync period, at the end, and before the trainer would wait for nothing else, of one
        that publishes any."""
        step = batch.step
        if step is None or not self._start.timeline or not self._stream.history.started:
            return False
        is_period = step % self._settings.trainer.sync_period == 0
        return is_period or step == last_step or self._stream.doomed(step + 1)

    @property
    def _stream(self) -> GroupStream:
        return self._open_parts()[0]

    @property
    def _thread(self) -> LoopThread:
        return self._open_parts()[1]

    def _open_parts(self) -> tuple[GroupStream, LoopThread]:
        if self._opened is None:
            raise RanksDisagree("this is for rank 0 alone: the others have no stream of their own")
        return self._opened


async def _next_of(batches: BatchIterator) -> Batch | None:
    return await anext(batches, None)
