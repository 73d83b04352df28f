"""Which tokens of the axis are the rows of some samples: a row is a label and what comes before it
(design/trainer#tensors).

Guarantees: rows are said by node, so that to choose samples, to cut or to silence them costs as much as they have
nodes; columns are made when they are asked for, as packs hold them. Leaves out: which branches make samples
(`samples`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from rolloutlog.contract.wire.arrays import Array
from rolloutlog.trainer.batches.column_memory import ColumnMemory, ColumnRoom
from rolloutlog.trainer.batches.sampling import NAMES
from rolloutlog.trainer.batches.token_axis import I64, TokenFacts, ranges
from rolloutlog.trainer.staleness.mask_runs import Bools

IGNORED = -100
"""Label of a token that isn't in the loss."""


@dataclass(slots=True, frozen=True)
class SampleRows:
    """Rows of S samples. Sample `i` has `paths[i]` nodes, whose numbers on the axis are in `nodes`, one sample after
    another; a node's rows are the `counts` tokens from `firsts` on, in the loss only where it is `new`: not trained in
    an earlier sample. `before[i]` is the token before the first label."""

    facts: TokenFacts
    paths: I64
    nodes: I64
    firsts: I64
    counts: I64
    new: Bools
    before: I64

    @classmethod
    def of(cls, facts: TokenFacts, paths: I64, nodes: I64, tokens: I64) -> Self:
        """All tokens of these paths but the first of each, before which there is nothing; `tokens` of each node."""
        owner = np.repeat(np.arange(len(paths)), paths)
        some = np.flatnonzero(tokens)
        _, at = np.unique(owner[some], return_index=True)
        heads = some[at]  # the first node of each sample that has a token
        firsts, counts = facts.axis.starts[nodes], tokens.copy()
        before = np.zeros(len(paths), np.int64)
        before[owner[heads]] = firsts[heads]
        firsts[heads] += 1
        counts[heads] -= 1
        new = np.zeros(len(nodes), np.bool_)
        new[np.unique(nodes, return_index=True)[1]] = True
        return cls(facts, paths, nodes, firsts, counts, new, before)

    @property
    def lengths(self) -> I64:
        """Rows of each sample."""
        return _sums(self.counts, self.paths)

    def only(self, chosen: Sequence[int] | I64) -> SampleRows:
        """Those samples, in that order."""
        picked = np.asarray(chosen, np.int64)
        paths = self.paths[picked]
        at = ranges((np.cumsum(self.paths) - self.paths)[picked], paths)
        return replace(
            self, paths=paths, nodes=self.nodes[at], firsts=self.firsts[at], counts=self.counts[at], new=self.new[at],
            before=self.before[picked],
        )  # fmt: skip

    def cut(self, most: int) -> SampleRows:
        """The first `most` rows of each sample."""
        ends = np.cumsum(self.counts)
        begin = np.repeat(np.cumsum(self.lengths) - self.lengths, self.paths)
        return replace(self, counts=np.clip(most - (ends - self.counts - begin), 0, self.counts))

    def silent(self) -> SampleRows:
        """The same, with no label in the loss."""
        return replace(self, new=np.zeros_like(self.new))

    def label_counts(self) -> I64:
        """Labels in the loss, of each sample."""
        trained, ends = self.facts.trained, self.firsts + self.counts
        found = [np.count_nonzero(trained[a:b]) for a, b in zip(self.firsts.tolist(), ends.tolist(), strict=True)]
        return _sums(np.array(found, np.int64) * self.new, self.paths)

    def columns(self, room: ColumnRoom | None = None) -> dict[str, Array]:
        """What packs hold of each row, in their dtypes; in that room, if there is one."""
        facts, places, room = self.facts, self._places(), room or ColumnMemory().room(0)
        long, used = facts.stretches(places), self._used(places)
        ids, (timelines, versions) = long.tokens(room), long.policies(room)
        inputs = self._inputs(ids, room)
        np.copyto(ids, IGNORED, where=~used)
        advantages = room.empty(len(used), np.float32)
        np.multiply(np.repeat(facts.advantages[self.nodes], self.counts), used, out=advantages)
        return {
            "input_ids": inputs,
            "labels": ids,
            "behaviour_logprobs": long.logprobs(room),
            "advantages": advantages,
            "timelines": timelines,
            "versions": versions,
            **{name: self._said(at, room) for at, name in enumerate(NAMES)},
            **{name: long.named(name, column) for name, column in facts.named.items()},
        }

    def _said(self, number: int, room: ColumnRoom) -> Array:
        """One of the numbers by which each row was sampled."""
        made = room.empty(int(self.counts.sum()), np.float32)
        by_node = self.facts.sampling[self.nodes, number]
        first = by_node[:1]
        if (by_node.view(np.int32) == first.view(np.int32)).all():  # as bits, since most are no number
            made[:] = first if len(first) else 0
        else:
            made[:] = np.repeat(by_node, self.counts)
        return made

    def _places(self) -> list[slice]:
        """Where the rows lie on the axis, neighbours in one: a branch that is all of its member is one."""
        some = self.counts > 0
        starts = self.firsts[some]
        ends = starts + self.counts[some]
        apart = np.flatnonzero(ends[:-1] != starts[1:])
        first, last = np.append(0, apart + 1)[: len(starts)], np.append(apart, len(ends) - 1)[: len(ends)]
        return [slice(a, b) for a, b in zip(starts[first].tolist(), ends[last].tolist(), strict=True)]

    def _used(self, places: list[slice]) -> Bools:
        used = gathered(self.facts.trained, places)
        return used if self.new.all() else used & np.repeat(self.new, self.counts)

    def _inputs(self, ids: I64, room: ColumnRoom) -> I64:
        """What comes before each label: the label before, or the sample's first token."""
        made = room.empty(len(ids), np.int64)
        made[1:] = ids[:-1]
        lengths = self.lengths
        some = lengths > 0
        made[(np.cumsum(lengths) - lengths)[some]] = self.facts.tokens_at(self.before[some])
        return made


def gathered(column: Array, places: list[slice]) -> Array:
    """Those parts of a column, one after another."""
    return np.concatenate([column[place] for place in places]) if places else column[:0]


def _sums(values: I64, sizes: I64) -> I64:
    """The sum of each part of a column, whose parts have those sizes."""
    if len(sizes) and sizes.all():
        return np.add.reduceat(values, np.cumsum(sizes) - sizes)
    totals = np.append(0, np.cumsum(values))
    return np.diff(totals[np.append(0, np.cumsum(sizes))])
