"""The tokens of several members on one axis, member after member, node after node (design/record#graph).

Guarantees: what samples are chosen by is known of all members at once, made with a few operations and never token by
token; long columns are gathered when a pack is made, of its tokens alone. Leaves out: branches (`sample_rows`), and how
long columns are gathered (`stretches`).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from rolloutlog.contract.errors import SettingsError
from rolloutlog.contract.record.segments import Runs
from rolloutlog.contract.record.trajectory import AGENT, PARENT, TOKENS, Trajectory
from rolloutlog.contract.wire.arrays import Array
from rolloutlog.trainer.batches.sampling import NAMES, Sampling
from rolloutlog.trainer.batches.stretches import Named, Stretch, Stretches, spread
from rolloutlog.trainer.staleness.mask_runs import NOTHING, Bools, Spans, mask_of

I32 = npt.NDArray[np.int32]
I64 = npt.NDArray[np.int64]
F32 = npt.NDArray[np.float32]


OWN = (
    "input_ids", "labels", "behaviour_logprobs", "advantages", *NAMES, "timelines", "versions",
)  # fmt: skip
"""Columns that every pack has."""
LONGEST = 8
"""Bytes of the integers that no float holds exactly."""


def ranges(starts: I64, counts: I64) -> I64:
    """`starts[i]` to `starts[i] + counts[i]`, one after another."""
    return np.arange(int(counts.sum())) + np.repeat(starts - (np.cumsum(counts) - counts), counts)


def joined(parts: Sequence[Array], dtype: type[np.generic], width: tuple[int, ...] = ()) -> Array:
    """Parts of one column, one after another."""
    return np.concatenate(parts).astype(dtype, copy=False) if parts else np.empty((0, *width), dtype)


@dataclass(slots=True, frozen=True)
class TokenAxis:
    """T tokens of N nodes of the trajectories. `nodes` are all their nodes, of which `first_node[i]` is the first of
    trajectory `i`, and `ends[i]` where its tokens end; `starts` the first token of each node, `sampled` which tokens
    were sampled."""

    trajectories: Sequence[Trajectory]
    nodes: I32
    first_node: I64
    ends: I64
    starts: I64
    sampled: Bools

    @classmethod
    def of(cls, trajectories: Sequence[Trajectory]) -> Self:
        """The axis of checked trajectories."""
        nodes = joined([t.nodes for t in trajectories], np.int32, (5,))
        counts = np.array([len(t.nodes) for t in trajectories], np.int64)
        ends = np.cumsum([len(t.token_ids) for t in trajectories], dtype=np.int64)
        tokens = nodes[:, TOKENS].astype(np.int64)
        sampled = joined([t.mask for t in trajectories], np.uint8).view(np.bool_)
        return cls(trajectories, nodes, np.cumsum(counts) - counts, ends, np.cumsum(tokens) - tokens, sampled)

    def lines(self) -> Bools:
        """Which trajectories are one branch, each node the child of the one before; bool by trajectory."""
        counts = np.diff(self.first_node, append=len(self.nodes))
        place = np.arange(len(self.nodes)) - np.repeat(self.first_node, counts)
        found = np.zeros(len(counts), np.bool_)
        found[counts > 0] = np.logical_and.reduceat(self.nodes[:, PARENT] == place - 1, self.first_node[counts > 0])
        return found

    def trained(self, spans: Sequence[Spans]) -> Bools:
        """Which tokens train, by the spans of each trajectory on its response axis; bool [T]."""
        lengths = np.array([t.response_tokens for t in self.trajectories], np.int64)
        shift = np.repeat(np.cumsum(lengths) - lengths, [len(own) for own in spans])
        every = np.concatenate([NOTHING, *spans])
        every = np.stack([every[:, 0] + shift, every[:, 1]], axis=1)
        return spread(mask_of(every, int(lengths.sum())), self.sampled)

    def by_agent(self, values: Sequence[Sequence[float]]) -> F32:
        """A number of each trajectory's agents, at all nodes of theirs, [N]."""
        counts = np.array([len(own) for own in values], np.int64)
        first = np.repeat(np.cumsum(counts) - counts, [len(t.nodes) for t in self.trajectories])
        return np.array([value for own in values for value in own], np.float32)[first + self.nodes[:, AGENT]]

    def sampling(self, run: Sampling) -> F32:
        """Temperature, top_p and top_k of each node, [N, 3]; NaN where they are unknown."""
        with np.errstate(over="ignore"):  # a record may say a number beyond float32, which is infinite here
            return np.array(run.numbers(self.trajectories), np.float32).reshape(-1, len(NAMES))

    def named(self, name: str) -> Named:
        """A column of the records, of alignment token or sampled. Raises SettingsError."""
        if name in OWN:
            raise SettingsError(f"packs have a column {name} of their own", "give the records' column another name")
        columns = [t.columns.get(name) for t in self.trajectories]
        kinds = {None if column is None else column.alignment for column in columns}
        if not kinds <= {"token"} and not kinds <= {"sampled"}:
            what = "is missing in some records" if None in kinds else f"has alignments {', '.join(map(str, kinds))}"
            raise SettingsError(f"column {name} {what}: packs hold columns of one alignment, token or sampled")
        arrays = [column.array for column in columns if column is not None]
        widths = {array.shape[1:] for array in arrays} or {()}
        if len(widths) > 1:
            what = " and ".join(str(list(width)) for width in sorted(widths))
            raise SettingsError(f"column {name} says {what} numbers of a token: packs hold columns of one shape")
        return Named("sampled" in kinds, _kind_of(name, {array.dtype for array in arrays}), *widths)


def _kind_of(name: str, kinds: Collection[np.dtype[Any]]) -> np.dtype[Any]:
    """A dtype for all of them, which holds each number that they hold. Raises SettingsError where there is none."""
    kind = np.result_type(*kinds) if kinds else np.dtype("?")
    if kind.kind == "f" and any(one.kind in "iu" and one.itemsize == LONGEST for one in kinds):
        what = " and ".join(sorted(one.name for one in kinds))
        raise SettingsError(f"column {name} holds {what}, and no dtype holds every number of these")
    return kind


@dataclass(slots=True, frozen=True, kw_only=True)
class TokenFacts:
    """What is known of the tokens of an axis: which are `trained`; `advantages` and `sampling` by node; `runs` of each
    trajectory, and what the `named` columns are: from these what is long is gathered."""

    axis: TokenAxis
    runs: Sequence[Runs]
    trained: Bools
    advantages: F32
    sampling: F32
    named: dict[str, Named] = field(default_factory=dict[str, Named])

    @classmethod
    def of(
        cls,
        axis: TokenAxis,
        *,
        runs: Sequence[Runs],
        spans: Sequence[Spans],
        advantages: Sequence[Sequence[float]],
        sampling: Sampling,
        columns: Sequence[str] = (),
    ) -> Self:
        """By the runs and trained spans of each trajectory, and its agents' advantages. Raises SettingsError where a
        record lacks one of the `columns`."""
        return cls(
            axis=axis,
            runs=runs,
            trained=axis.trained(spans),
            advantages=axis.by_agent(advantages),
            sampling=axis.sampling(sampling),
            named={name: axis.named(name) for name in columns},
        )

    def stretches(self, places: Sequence[slice]) -> Stretches:
        """These parts of the axis, none of which is of two trajectories."""
        owners, shifts = self._owners([place.start for place in places])
        return Stretches.of(
            [
                Stretch.of(self.axis.trajectories[owner], self.runs[owner], place.start - shift, place.stop - shift)
                for place, owner, shift in zip(places, owners, shifts, strict=True)
            ]
        )

    def tokens_at(self, places: I64) -> list[int]:
        """The tokens at these places of the axis."""
        owners, shifts = self._owners(places)
        trajectories = self.axis.trajectories
        return [
            trajectories[owner].token_ids.item(place - shift)
            for place, owner, shift in zip(places.tolist(), owners, shifts, strict=True)
        ]

    def _owners(self, places: Sequence[int] | I64) -> tuple[list[int], list[int]]:
        """Whose these places of the axis are, and where the tokens of each of these begin."""
        ends = self.axis.ends
        owners = np.searchsorted(ends, places, side="right")
        begins = np.append(0, ends)[owners]
        return owners.tolist(), begins.tolist()
