"""A batch in a training loop: its packs, what to divide by, and that it was trained (design/trainer#loop).

Guarantees: the packs of all ranks hold each sample once, and as many for each rank; denominators are of all of them.
Weights are published at the steps of the sync period, at no other unless that is asked for, and none is left out.
Leaves out: drawing (`sync_group_stream`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar, cast

from rolloutlog.contract.errors import SampleUnusable, SettingsError
from rolloutlog.contract.vocabulary import DropReason
from rolloutlog.trainer.batches.column_memory import ColumnMemory
from rolloutlog.trainer.dispatch.batch import Batch, DrawnGroup, DrawnMember, LeftOut
from rolloutlog.trainer.loop.job_ranks import JobRanks
from rolloutlog.trainer.steps.step_report import StepReport

if TYPE_CHECKING:
    from rolloutlog.trainer.batches.advantages import Estimator
    from rolloutlog.trainer.batches.losses import Denominators
    from rolloutlog.trainer.batches.micro_batches import Overlong
    from rolloutlog.trainer.batches.rank_share import MiniBatch
    from rolloutlog.trainer.batches.sample_limits import LeaveOut
    from rolloutlog.trainer.batches.samples import SampleTable
    from rolloutlog.trainer.batches.sampling import Sampling
    from rolloutlog.trainer.batches.tensors import PackedBatch

log = logging.getLogger(__name__)

T = TypeVar("T")
Saved = tuple[str, str | None]
"""Where something lies, and its digest."""


class SavedFile(NamedTuple):
    """Where something was written, its digest, and what to do once that is on the log."""

    uri: str
    digest: str | None
    commit: Callable[[], None] = lambda: None


class Teller(Protocol):
    """What a batch is told to."""

    def __call__(
        self, batch: Batch, *, publish: Saved | None, checkpoint: Saved | None, without: Mapping[str, LeftOut] | None
    ) -> StepReport:
        """Put the step on the log."""
        ...


class TrainingBatch:
    """A batch that is lent to a training loop: `trained` tells it. Its groups are on rank 0 alone.

    `step` is its train step, None where each group has its own; `publishes`: weights are due after it.
    """

    __slots__ = ("_batch", "_denominators", "_left_out", "_memory", "_ranks", "_tell", "publishes", "step")

    def __init__(
        self,
        step: int | None,
        batch: Batch | None,
        ranks: JobRanks,
        tell: Teller,
        *,
        publishes: bool,
        memory: ColumnMemory | None = None,
    ) -> None:
        """`batch` is None on ranks above 0; packs lie in `memory`."""
        self.step, self.publishes = step, publishes
        self._batch, self._ranks, self._tell = batch, ranks, tell
        self._memory = memory or ColumnMemory()
        self._denominators: Denominators | None = None
        self._left_out: dict[str, SampleUnusable] = {}

    def __iter__(self) -> Iterator[DrawnGroup]:
        """Its groups."""
        return iter(self.batch)

    @property
    def batch(self) -> Batch:
        """What was drawn. Raises SettingsError on ranks above 0, which get packs alone."""
        if self._batch is None:
            raise SettingsError("groups are on rank 0 alone", "`packs` gives each rank its share")
        return self._batch

    @property
    def groups(self) -> tuple[DrawnGroup, ...]:
        """Its groups."""
        return self.batch.groups

    @property
    def left_out(self) -> Mapping[str, SampleUnusable]:
        """Groups that `packs` left out, which `trained` drops by that reason; on rank 0."""
        return self._left_out

    @property
    def members(self) -> Iterator[DrawnMember]:
        """All members of all groups."""
        return self.batch.members

    def packs(
        self,
        max_tokens: int,
        *,
        estimator: Estimator | None = None,
        sampling: Sampling | None = None,
        columns: Sequence[str] = (),
        overlong: Overlong = "error",
        vocabulary: int | None = None,
        context: int | None = None,
        leave_out: LeaveOut = "none",
    ) -> list[PackedBatch]:
        """This rank's share of the samples, in packs of at most `max_tokens` tokens, as many on every rank.

        Arguments as of `samples_of` and `micro_batches`. A sample that can't be trained is refused: above `max_tokens`
        or the `context` of the model, with a token outside the `vocabulary`, of an advantage beyond all numbers. With
        `leave_out` its group isn't trained instead, nor one without a temperature, and `trained` says so; "some" is not
        all of a batch. Every rank calls it. Raises SettingsError, SampleUnusable.
        """
        from rolloutlog.trainer.batches.rank_share import nothing, rank_shares

        def shares() -> list[MiniBatch]:
            table = self._samples(estimator, sampling, columns)
            table = self._usable(table, max_tokens, overlong, vocabulary, context, leave_out)
            if self._left_out and not table.samples:
                return [nothing()] * self._ranks.size
            return rank_shares(table, max_tokens, ranks=self._ranks.size, overlong=overlong, memory=self._memory)

        own = self._ranks.deal(shares)
        self._denominators = own.denominators
        return own.packs

    def mini_batches(
        self,
        max_tokens: int,
        *,
        count: int = 1,
        epochs: int = 1,
        seed: int | None = None,
        estimator: Estimator | None = None,
        sampling: Sampling | None = None,
        columns: Sequence[str] = (),
        overlong: Overlong = "error",
        vocabulary: int | None = None,
        context: int | None = None,
        leave_out: LeaveOut = "none",
    ) -> Iterator[MiniBatch]:
        """The optimiser steps of this train step, one after another: `count` in each of `epochs`, whole groups, each
        with packs and denominators of its own.

        `seed` deals the groups anew in each epoch of each step; None: always in the order of the draw. Otherwise as
        `packs`.
        """
        from rolloutlog.trainer.batches.mini_batches import mini_batches
        from rolloutlog.trainer.batches.rank_share import rank_shares

        steps: list[Iterator[tuple[int, SampleTable]]] = []

        def shares() -> Sequence[MiniBatch | None]:
            if not steps:
                table = self._samples(estimator, sampling, columns)
                table = self._usable(table, max_tokens, overlong, vocabulary, context, leave_out)
                own_seed = None if seed is None else (seed, self.step or 0)
                steps.append(mini_batches(table, count, epochs=epochs, seed=own_seed))
            epoch, table = next(steps[0], (0, None))
            if table is None:
                return [None] * self._ranks.size
            return rank_shares(
                table, max_tokens, ranks=self._ranks.size, overlong=overlong, epoch=epoch, memory=self._memory
            )

        while (own := self._ranks.deal(shares)) is not None:
            yield own

    def _samples(self, estimator: Estimator | None, sampling: Sampling | None, columns: Sequence[str]) -> SampleTable:
        from rolloutlog.trainer.batches.advantages import Estimator
        from rolloutlog.trainer.batches.samples import samples_of

        return samples_of(self.batch, estimator=estimator or Estimator.GRPO, sampling=sampling, columns=columns)

    def _usable(
        self,
        table: SampleTable,
        max_tokens: int,
        overlong: Overlong,
        vocabulary: int | None,
        context: int | None,
        leave_out: LeaveOut,
    ) -> SampleTable:
        """What can be trained; what else there is in its groups is left out by name."""
        from rolloutlog.trainer.batches.sample_limits import SampleLimits, usable

        cuts = overlong == "truncate"
        limits = SampleLimits(
            max_tokens=None if cuts else max_tokens,
            context=context,
            vocabulary=vocabulary,
            tempered=leave_out != "none",
        )
        table, left_out = usable(table.cut(max_tokens) if cuts else table, limits, leave_out)
        for error in left_out.values():
            log.warning("left out of train step %s: %s", self.step, error.message)
        self._left_out = left_out
        return table

    @property
    def denominators(self) -> Denominators:
        """What the losses of its packs are divided by, on all ranks the same. Raises SettingsError before `packs`."""
        if self._denominators is None:
            raise SettingsError("denominators are of packs", "call `packs` first")
        return self._denominators

    def trained(
        self,
        *,
        publish: Callable[[], Saved | SavedFile] | None = None,
        checkpoint: Callable[[], Saved | SavedFile] | None = None,
        without: Mapping[str, LeftOut] | None = None,
        early: bool = False,
    ) -> StepReport:
        """Record that it was trained; returns once that is on the log.

        `publish` writes the weights and `checkpoint` the state, before anything is on the log; each returns where it
        wrote, and a digest. Every rank calls it and them, and what rank 0's return counts. Of what was `SavedFile` each
        rank calls `commit` then, so that what that raises comes after the step is told. `early` publishes off the sync
        period. Raises SettingsError where weights are due and aren't given, or given and aren't due,
        RanksDisagree, and what `GroupStream.trained` raises.
        """
        if publish is not None and not self.publishes and not early:
            raise SettingsError(
                f"weights aren't due after step {self.step}", "publish where `batch.publishes`, or early=True"
            )
        if publish is None and self.publishes:
            raise SettingsError(
                f"weights are due after step {self.step}, or workers sample with older ones than was reckoned with",
                "give publish=, or another `trainer.sync_period`; Start(timeline=False) is for who publishes none",
            )
        self._ranks.agree(self.step)

        def told(where: Saved | None, saved: Saved | None) -> StepReport:
            left_out = {group: (DropReason.UNUSABLE, error.message) for group, error in self._left_out.items()}
            return self._tell(self.batch, publish=where, checkpoint=saved, without={**left_out, **(without or {})})

        return write_and_tell(self._ranks, told, publish=publish, checkpoint=checkpoint)


def write_and_tell(
    ranks: JobRanks,
    tell: Callable[[Saved | None, Saved | None], T],
    *,
    publish: Callable[[], Saved | SavedFile] | None,
    checkpoint: Callable[[], Saved | SavedFile] | None,
) -> T:
    """Write weights and state on all ranks, tell where rank 0's lie, then commit them."""
    weights = publish() if publish else None
    state = checkpoint() if checkpoint else None

    def told() -> T:
        where = _saved("publish", weights) if publish else None
        return tell(where, _saved("checkpoint", state) if checkpoint else None)

    report = ranks.tell(told)
    for written in (weights, state):
        if isinstance(written, SavedFile):
            written.commit()
    return report


def _saved(name: str, made: object) -> Saved:
    """The pair that a callable of rank 0 returned: not None, by which nothing would be told, nor a text of two letters,
    which would pass for one. Raises SettingsError."""
    if isinstance(made, SavedFile):
        return made.uri, made.digest
    if isinstance(made, tuple | list) and len(pair := tuple(cast("Sequence[Any]", made))) == 2:
        return cast("Saved", pair)
    raise SettingsError(f"{name} returned {made!r:.80}", "it returns where it wrote, and a digest or None: a pair")
