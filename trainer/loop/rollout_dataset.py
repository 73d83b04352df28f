"""`RolloutDataset`: a stream's packs as a torch `IterableDataset`, for loops that are built around a `DataLoader`
(design/trainer#dataset).

Guarantees: it iterates in the process that trains, where the next batch is drawn meanwhile; on several ranks each has
its share. `batch` is the one whose packs come, and `step_ends` says that its last one did, so the loop tells it before
it asks for more. A worker process of a DataLoader is refused: it would be handed packs before others are trained, and
could tell nobody. Leaves out: the stream, which is opened and closed by whoever trains.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal, NoReturn

from torch.utils.data import IterableDataset, get_worker_info

from rolloutlog.contract.errors import SettingsError
from rolloutlog.trainer.batches.advantages import Estimator
from rolloutlog.trainer.batches.micro_batches import Overlong
from rolloutlog.trainer.batches.sampling import Sampling
from rolloutlog.trainer.batches.tensors import PackedBatch
from rolloutlog.trainer.loop.sync_group_stream import SyncGroupStream
from rolloutlog.trainer.loop.training_batch import TrainingBatch


class RolloutDataset(IterableDataset[PackedBatch]):
    """Packs of an open stream; give it to `DataLoader(dataset, batch_size=None)`, or iterate over it."""

    def __init__(
        self,
        stream: SyncGroupStream,
        max_tokens: int,
        *,
        groups: int | None = None,
        drain: bool = False,
        estimator: Estimator | None = None,
        sampling: Sampling | None = None,
        columns: Sequence[str] = (),
        overlong: Overlong = "error",
        vocabulary: int | None = None,
        leave_out: Literal["none", "some"] = "none",
    ) -> None:
        """Arguments as of `SyncGroupStream.batches` and `TrainingBatch.packs`."""
        self._stream, self._max_tokens, self._groups, self._drain = stream, max_tokens, groups, drain
        self._estimator, self._sampling, self._columns = estimator, sampling, columns
        self._overlong: Overlong = overlong
        self._vocabulary = vocabulary
        self._leave_out: Literal["none", "some"] = leave_out
        self._batch: TrainingBatch | None = None
        self.step_ends = False

    @property
    def batch(self) -> TrainingBatch:
        """The batch whose packs come: divide by its `denominators`, and tell it once `step_ends`. Raises SettingsError
        before the first."""
        if self._batch is None:
            raise SettingsError("no pack has come yet, so there is no batch", "iterate over the dataset first")
        return self._batch

    def __iter__(self) -> Iterator[PackedBatch]:
        """The packs of batch after batch. Raises SettingsError in a worker process, and what the stream raises."""
        if get_worker_info() is not None:
            _refuse_workers()
        for batch in self._stream.batches(self._groups, drain=self._drain):
            self._batch = batch
            packs = batch.packs(
                self._max_tokens,
                estimator=self._estimator,
                sampling=self._sampling,
                columns=self._columns,
                overlong=self._overlong,
                vocabulary=self._vocabulary,
                leave_out=self._leave_out,
            )
            for number, pack in enumerate(packs, 1):
                self.step_ends = number == len(packs)
                yield pack

    def __getstate__(self) -> NoReturn:
        """It isn't sent to another process. Raises SettingsError."""
        _refuse_workers()


def _refuse_workers() -> NoReturn:
    raise SettingsError(
        "a worker process of a DataLoader can't read the stream: it would take packs ahead, and tell nothing",
        "num_workers=0, the default: the next batch is drawn in a thread while one is trained; several processes train "
        "as ranks of torch.distributed",
    )
