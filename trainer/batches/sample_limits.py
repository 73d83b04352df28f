"""What samples must be to be trained, looked at before any of them is: length, token ids, temperature, advantage
(design/trainer#left-out).

Guarantees: a sample that a model can't take, or of which no loss can be made, is told by name before a weight moves,
context tokens included: an embedding would fail on a GPU without saying where. Where it is asked for, its group is left
out instead. Leaves out: what a model can take, which the loop says, and telling the log (`training_batch`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np

from rolloutlog.contract.errors import SampleUnusable
from rolloutlog.contract.wire.arrays import Array
from rolloutlog.trainer.batches.sample_errors import unusable
from rolloutlog.trainer.batches.sample_rows import IGNORED
from rolloutlog.trainer.batches.samples import SampleTable
from rolloutlog.trainer.batches.token_axis import I64
from rolloutlog.trainer.staleness.mask_runs import Bools

LeaveOut = Literal["none", "some", "all"]
"""How many groups of a batch may be left out: where none remains, rather the limits are wrong."""

LARGEST_ADVANTAGE = 1e10
"""Times the largest ratio (`importance.FARTHEST`) its square is still a float32, so the norm of a gradient is one."""

COLDEST = 1e-5
"""Engines sample greedily below it, and logits over it are still float32."""


@dataclass(slots=True, frozen=True, kw_only=True)
class SampleLimits:
    """Tokens that fit in a pack and that a model has positions for, and ids below `vocabulary`; None: any. `tempered`:
    a label has a temperature."""

    max_tokens: int | None = None
    context: int | None = None
    vocabulary: int | None = None
    tempered: bool = False

    def unusable(self, table: SampleTable) -> dict[str, SampleUnusable]:
        """By group, what is wrong with a sample of it."""
        found: dict[str, SampleUnusable] = {}
        for errors in (self._overlong(table), _extreme(table), self._by_rows(table)):
            for error in errors:
                found.setdefault(error.group, error)
        return found

    def _overlong(self, table: SampleTable) -> Iterator[SampleUnusable]:
        hints = (
            (self.max_tokens, "above max_tokens {}", "raise max_tokens, or say overlong='truncate'"),
            (self.context, "and the model has {} positions", "raise `model.context`"),
        )
        for most, said, hint in hints:
            for sample in np.flatnonzero(table.lengths > most).tolist() if most is not None else ():
                what = f"{int(table.lengths[sample])} tokens, {said.format(most)}"
                yield unusable(table.samples[sample], what, hint)

    def _by_rows(self, table: SampleTable) -> Iterator[SampleUnusable]:
        if self.vocabulary is None and not self.tempered:
            return
        columns = table.columns
        if self.vocabulary is not None:
            yield from _outside(table, columns["input_ids"], columns["labels"], self.vocabulary)
        if self.tempered:
            said = columns["temperature"]
            odd = (columns["labels"] != IGNORED) & ~((said >= COLDEST) & (said < math.inf))
            for sample, row in _first_of_groups(table, odd):
                yield unusable(table.samples[sample], *untempered(float(columns["temperature"][row])))


def untempered(temperature: float) -> tuple[str, str]:
    """What is wrong with it, and what to do."""
    return (
        f"temperature {temperature:g}, so its log-probs can't be compared",
        "records say it (`Rollout.flat(temperature=...)`), or say it for the run: sampling=Sampling(temperature=1)",
    )


def usable(
    table: SampleTable, limits: SampleLimits, leave_out: LeaveOut
) -> tuple[SampleTable, dict[str, SampleUnusable]]:
    """The samples without the groups that can't be trained, and these. Raises SampleUnusable where there is one too
    many."""
    bad = limits.unusable(table)
    if not bad:
        return table, bad
    first = next(iter(bad.values()))
    kept = [number for number, sample in enumerate(table.samples) if sample.group not in bad]
    if leave_out == "none":
        raise first
    if leave_out == "some" and not kept:
        raise SampleUnusable(
            f"none of these {len(bad)} groups can be trained: {first.message}",
            f"rather the limits are wrong: {first.hint}; leave_out 'all' leaves out whole batches as well",
            first.group,
            first.member,
            first.handle,
        )
    return table.only(kept), bad


def _extreme(table: SampleTable) -> Iterator[SampleUnusable]:
    """By node, of which there are few."""
    rows = table.rows
    extreme = ~(np.abs(rows.facts.advantages[rows.nodes]) <= LARGEST_ADVANTAGE)
    if extreme.any():
        owner: I64 = np.repeat(np.arange(len(rows.paths)), rows.paths)
        which: I64 = np.unique(owner[extreme])
        for sample in map(int, which):
            yield unusable(
                table.samples[sample],
                f"its advantage is beyond {LARGEST_ADVANTAGE:g}, and gradients would be no numbers",
                "scale rewards down, or take the estimator `grpo`, which divides by their deviation",
            )


def _outside(table: SampleTable, inputs: Array, labels: Array, size: int) -> Iterator[SampleUnusable]:
    for sample, row in _first_of_groups(table, (inputs >= size) | (labels >= size)):
        ahead = int(inputs[row] < size)  # a label is the next token of its sequence
        token, position = (labels if ahead else inputs)[row], row - table.starts[sample] + ahead
        yield unusable(
            table.samples[sample],
            f"token {token} at position {position} is outside a vocabulary of {size}",
            "was it sampled with another tokenizer?",
        )


def _first_of_groups(table: SampleTable, wrong: Bools) -> Iterator[tuple[int, int]]:
    """The first wrong row of each group, with its sample."""
    rows = np.flatnonzero(wrong)
    samples = np.searchsorted(table.starts, rows, side="right") - 1
    _, at = np.unique(table.group[samples], return_index=True)
    yield from zip(samples[at].tolist(), rows[at].tolist(), strict=True)
