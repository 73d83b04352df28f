"""The training loop of `train run`: whole groups off the log, trained once, weights back onto it
(design/live-loop#training).

    report = await run_training(settings, steps=200, on_row=print, stop=stop)

Guarantees: weights are written before their step is told, and a step is told before its row is written; whatever fails
before that leaves the step untold, and the next start gets its groups again. It trains in a thread, so a signal is
heard while it does; asked to stop it ends after the step that it is at. However it ends in order, the weights and the
checkpoint of its last step are on the log. Leaves out: several ranks, which a loop of your own on a `SyncGroupStream`
has (docs/write-a-trainer.md).
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from pathlib import Path

import torch

from rolloutlog.contract.errors import CheckpointUnusable, Fenced, SettingsError, WeightsUnusable
from rolloutlog.contract.events.policy_versions import SavedCheckpoint
from rolloutlog.contract.policies import Policy
from rolloutlog.contract.settings import Settings
from rolloutlog.policy.weights import SavedWeights, load_weights, put_weights, save_weights, weights_in
from rolloutlog.trainer.batches.advantages import Estimator
from rolloutlog.trainer.loop.checkpoint_folder import CheckpointFolder
from rolloutlog.trainer.loop.sync_group_stream import SyncGroupStream
from rolloutlog.trainer.loop.training_batch import SavedFile, TrainingBatch
from rolloutlog.trainer.stream.starting import Start
from rolloutlog.trainer.training.beginning import Beginning, Resume, published_weights, read_beginning
from rolloutlog.trainer.training.kept_optimizer import KeptOptimizer
from rolloutlog.trainer.training.kept_weights import KeptWeights
from rolloutlog.trainer.training.model_choice import chosen_model, chosen_optimizer
from rolloutlog.trainer.training.model_limits import limits_of
from rolloutlog.trainer.training.model_step import ModelStep, StepNumbers
from rolloutlog.trainer.training.run_folder import RunFolder, writing
from rolloutlog.trainer.training.training_report import TrainingReport
from rolloutlog.trainer.training.training_row import Row, row_of

log = logging.getLogger(__name__)
UNREADABLE = (
    "put the file back, or go on from the newest checkpoint: `train run --resume checkpoint`; the newest "
    "`training.keep_weights` weights are kept, and those of checkpoints"
)
"""What to do where a trainer can't read the weights that it goes on from."""


class ModelTraining:
    """One life of a trainer; `stop` may be called from any thread."""

    def __init__(
        self,
        settings: Settings,
        *,
        steps: int | None,
        to_step: int | None,
        drain: bool,
        short_after_s: float | None,
        latest: bool,
        resume: Resume | None,
        on_row: Callable[[Row], None],
    ) -> None:
        self._settings, self._steps, self._drain, self._latest = settings, steps, drain, latest
        self._to_step, self._last, self._short_after_s = to_step, to_step, short_after_s
        self._resume: Resume | None = resume
        self._on_row = on_row
        self._folder = RunFolder.of(settings)
        self._kept = KeptWeights(settings)
        self._stopping = False
        self._unsaved: int | None = None
        self._stream: SyncGroupStream | None = None
        self.report = TrainingReport()

    def stop(self) -> None:
        """End after the step that it is at."""
        self._stopping = True
        if self._stream is not None:
            self._stream.stop()

    def run(self) -> TrainingReport:
        """Train until stopped, or the steps or the log end. Raises TrainingDiverged, ModelFailed, WeightsUnwritten,
        WeightsUnusable, PathUnusable, SettingsError, Fenced, and what `SyncGroupStream` raises."""
        settings = self._settings
        if settings.training.threads is not None:
            torch.set_num_threads(settings.training.threads)
        self._folder.open()
        model = chosen_model(settings)
        stepping = ModelStep(model, chosen_optimizer(settings.optimizer, model), settings)
        checkpoints = self._checkpoints(stepping)
        began = asyncio.run(
            read_beginning(settings, self._resume, lambda saved: checkpoints.is_sound(settings.run_id, saved))
        )
        self._take(began, model, checkpoints)
        with SyncGroupStream(settings, self._start(began, model, checkpoints)) as stream:
            self._stream = stream
            self._begin(stream, began, checkpoints)
            self._know_weights(stream, checkpoints)
            self._last = self._last_step(began)
            if self._stopping:
                stream.stop()
            self._train(stream, stepping, checkpoints)
            if self._unsaved is not None:
                self._save_last(stream, stepping, checkpoints, self._unsaved)
        return self.report

    def _checkpoints(self, stepping: ModelStep) -> CheckpointFolder:
        return CheckpointFolder(
            self._folder.checkpoints,
            keep=self._settings.training.keep_checkpoints,
            publish=lambda policy: self._save(stepping.model, policy),
            model=stepping.model,
            optimizer=KeptOptimizer(stepping.optimizer),
        )

    def _start(self, began: Beginning, model: torch.nn.Module, checkpoints: CheckpointFolder) -> Start:
        """The weights that a first start publishes are written before there is anything to say of them."""
        if began.weights is not None:
            return Start(resume=began.weights.policy if began.is_back else None, latest=self._latest)
        if began.checkpoint is not None:
            return Start(resume=checkpoints.up_to(began.checkpoint.step), latest=self._latest)
        first = self._save(model, Policy(0, 0))
        return Start(weights=first.uri, digest=first.digest, latest=self._latest)

    def _take(self, began: Beginning, model: torch.nn.Module, checkpoints: CheckpointFolder) -> None:
        """Put the weights that it goes on from into the model, before anything is said: they may be another model's."""
        if (weights := began.weights) is not None:
            if weights.uri is None:
                raise SettingsError(
                    f"policy {weights.policy} was published without weights", "nothing can go on from it"
                )
            try:
                tensors = load_weights(weights.uri, weights.digest)
            except WeightsUnusable as error:
                raise WeightsUnusable(error.message, UNREADABLE) from error
            put_weights(model, tensors)
        elif began.checkpoint is not None:
            checkpoints.load_part("model", self._settings.run_id, began.checkpoint)

    def _begin(self, stream: SyncGroupStream, began: Beginning, checkpoints: CheckpointFolder) -> None:
        """Take what else there is of where it goes on from. Raises Fenced where another trainer told a step
        meanwhile."""
        if stream.step is None:
            raise SettingsError(
                "the policies of this namespace were imported, so there is no step to publish weights after",
                "train from such a log with a loop of your own (docs/write-a-trainer.md), or in a new namespace",
            )
        if stream.step != began.step + 1:
            raise Fenced(f"the log is at train step {stream.step}, and the weights are those after {began.step}")
        if checkpoints.load(stream):
            log.warning("going on after train step %d, from its checkpoint", began.step)
        elif began.weights is not None:
            kept = self._load_optimizer(began.checkpoint, checkpoints)
            log.warning("going on after train step %d, with its weights, and the optimiser %s", began.step, kept)

    def _know_weights(self, stream: SyncGroupStream, checkpoints: CheckpointFolder) -> None:
        """Those of earlier lives, unless they have a place of their own."""
        if not self._settings.training.weights:
            there = weights_in(Path(self._folder.weights(self._settings)))
            steps = checkpoints.steps(self._settings.run_id, stream.history)
            self._kept.goes_on(there, asyncio.run(published_weights(self._settings)), stream.history, steps)

    def _load_optimizer(self, saved: SavedCheckpoint | None, checkpoints: CheckpointFolder) -> str:
        """That of an older checkpoint, if there is one: which steps of gradients its means lack is told."""
        if saved is None:
            return "as it is at first"
        try:
            checkpoints.load_part("optimizer", self._settings.run_id, saved)
        except (CheckpointUnusable, SettingsError) as error:
            return f"as it is at first, since {error.message}"
        return f"as it was after step {saved.step}"

    def _train(self, stream: SyncGroupStream, stepping: ModelStep, checkpoints: CheckpointFolder) -> None:
        waited = time.monotonic()
        for batch in stream.batches(drain=self._drain, last_step=self._last, short_after_s=self._short_after_s):
            row = self._told(stream, stepping, checkpoints, batch, waited)
            self._folder.add(row)
            self._on_row(row)
            if self._stopping:
                return
            waited = time.monotonic()

    def _told(
        self,
        stream: SyncGroupStream,
        stepping: ModelStep,
        checkpoints: CheckpointFolder,
        batch: TrainingBatch,
        waited: float,
    ) -> Row:
        """Train one batch and tell it."""
        drawn, step = time.monotonic(), batch.step or 0
        numbers = self._stepped(stepping, batch, step)
        trained = time.monotonic()
        is_last = self._stopping or step == self._last
        policy = Policy(stream.history.timeline, step)
        publish = (lambda: self._save(stepping.model, policy)) if batch.publishes or is_last else None
        is_due = is_last or step % self._settings.training.checkpoint_steps == 0
        checkpoint = (lambda: self._checkpoint(checkpoints, stream, batch)) if is_due else None
        report = batch.trained(publish=publish, checkpoint=checkpoint, early=is_last)
        if is_due:
            self._kept.saved(step)
        self._unsaved = None if is_due else step
        if publish is not None:
            self._kept.published()
        told, current = time.monotonic(), stream.history.current
        self.report.add(report, current)
        times = {"wait_s": drawn - waited, "train_s": trained - drawn, "tell_s": told - trained, "time": time.time()}
        return row_of(batch, report, numbers, current, stream.take_evals(), times)

    def _stepped(self, stepping: ModelStep, batch: TrainingBatch, step: int) -> StepNumbers:
        """The optimiser steps of a batch, and their numbers on average."""
        how, limits = self._settings.training, limits_of(stepping.model, self._settings)
        dealt = batch.mini_batches(
            how.max_tokens,
            count=how.mini_batches,
            epochs=how.epochs,
            seed=how.seed,
            estimator=Estimator(self._settings.loss.estimator),
            vocabulary=limits.vocabulary,
            context=limits.context,
            leave_out=how.leave_out,
        )
        return StepNumbers.mean([stepping(step, mini.packs, mini.denominators) for mini in dealt])

    def _save_last(
        self, stream: SyncGroupStream, stepping: ModelStep, checkpoints: CheckpointFolder, step: int
    ) -> None:
        """What the last step would have left, had it been known to be the last: the data ended, or it was asked to
        stop while it waited."""
        policy = Policy(stream.history.timeline, step)
        is_out = policy in stream.history.published
        stream.saved(
            publish=None if is_out else lambda: self._save(stepping.model, policy),
            checkpoint=lambda: self._checkpoint(checkpoints, stream),
        )
        self._kept.saved(step)
        if not is_out:
            self._kept.published()
        self.report.policy = str(policy)

    def _checkpoint(
        self, checkpoints: CheckpointFolder, stream: SyncGroupStream, batch: TrainingBatch | None = None
    ) -> SavedFile:
        with writing(self._folder.checkpoints):
            return checkpoints.save(stream, batch)

    def _last_step(self, began: Beginning) -> int | None:
        """The train step after which it ends; None where it goes on."""
        ends = [] if self._to_step is None else [self._to_step]
        return min([*ends, *([] if self._steps is None else [began.step + self._steps])], default=None)

    def _save(self, model: torch.nn.Module, policy: Policy) -> SavedWeights:
        saved = save_weights(model, self._folder.weights(self._settings), policy)
        self._kept.wrote(saved.uri)
        return saved


async def run_training(
    settings: Settings,
    *,
    steps: int | None = None,
    to_step: int | None = None,
    drain: bool = False,
    short_after_s: float | None = None,
    latest: bool = False,
    resume: Resume | None = None,
    on_row: Callable[[Row], None] = lambda _: None,
    stop: asyncio.Event | None = None,
) -> TrainingReport:
    """Train at most `steps` steps, none after train step `to_step`, `drain` to the log's present end, `latest` from
    there on, with `short_after_s` on fewer groups where no more come for so long; `resume` goes back to a policy or to
    the newest checkpoint. `on_row` is called after each step, in the thread that trains.

    `stop`, or cancelling, ends it after the step that it is at. Raises what `ModelTraining.run` raises.
    """
    training = ModelTraining(
        settings,
        steps=steps,
        to_step=to_step,
        drain=drain,
        short_after_s=short_after_s,
        latest=latest,
        resume=resume,
        on_row=on_row,
    )
    working = asyncio.ensure_future(asyncio.to_thread(training.run))
    stopping = asyncio.create_task((stop or asyncio.Event()).wait())
    try:
        await asyncio.wait({working, stopping}, return_when=asyncio.FIRST_COMPLETED)
        training.stop()
        return await asyncio.shield(working)
    except asyncio.CancelledError:
        training.stop()
        await asyncio.wait({working})
        raise
    finally:
        stopping.cancel()
