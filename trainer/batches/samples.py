"""Samples of drawn groups as columns: one per trainable branch, every column aligned with `labels`
(design/trainer#tensors).

Guarantees: a token's advantage, log-prob and policy are its own whatever is masked before it
(decisions/staleness#138); a sampled node that several branches share trains once, in the first; a sample in which
nothing trains isn't there. Leaves out: torch (`tensors`), and which samples make a pack (`micro_batches`). The first
token of a branch has nothing before it and is no label.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from rolloutlog.contract.errors import SettingsError
from rolloutlog.contract.handles import Handle
from rolloutlog.contract.record.declared_edges import kept_branches
from rolloutlog.contract.record.trajectory import AGENT, TOKENS, Trajectory
from rolloutlog.contract.wire.arrays import Array
from rolloutlog.trainer.batches.advantages import Estimator, group_advantages
from rolloutlog.trainer.batches.sample_rows import SampleRows
from rolloutlog.trainer.batches.sampling import Sampling
from rolloutlog.trainer.batches.token_axis import I64, TokenAxis, TokenFacts
from rolloutlog.trainer.dispatch.batch import DrawnGroup, DrawnMember


class PackedSample(NamedTuple):
    """Where a sequence comes from: one branch of one member, ending in node `leaf`. `truncated`: its answer was cut."""

    run: str | None
    group: str
    member: int
    attempt: int
    handle: Handle
    leaf: int
    agent: int
    reward: float
    truncated: bool
    stop_condition: str | None


class TrainedMember(NamedTuple):
    """A member that trains, with the number of its group in the batch and its agents' advantages."""

    drawn: DrawnMember
    group: DrawnGroup
    group_index: int
    trajectory: Trajectory
    run: str | None
    advantages: list[float]

    def sample(self, path: Sequence[int]) -> PackedSample:
        """The sample of one of its branches."""
        drawn, trajectory, leaf = self.drawn, self.trajectory, path[-1]
        stop = trajectory.record.get("stop_condition") if trajectory.may_say("stop_condition") else None
        agent = trajectory.nodes.item(leaf, AGENT)
        return PackedSample(
            self.run, self.group.id, drawn.member, drawn.attempt, drawn.handle, leaf, agent, drawn.reward,
            drawn.tokens.truncated, stop,
        )  # fmt: skip


@dataclass(slots=True, frozen=True)
class SampleTable:
    """S samples. `member` and `group` number each sample's member and group in the batch, `label_counts` are its labels
    in the loss; `rows` say where its tokens lie."""

    samples: tuple[PackedSample, ...]
    member: I64
    group: I64
    label_counts: I64
    rows: SampleRows

    @property
    def lengths(self) -> I64:
        """Rows of each sample."""
        return self.rows.lengths

    @property
    def starts(self) -> I64:
        """First row of each sample."""
        return np.cumsum(self.lengths) - self.lengths

    @property
    def columns(self) -> dict[str, Array]:
        """A row per token, sample after sample; gathered anew each time."""
        return self.rows.columns()

    def only(self, chosen: Sequence[int] | I64) -> SampleTable:
        """Those samples, in that order."""
        at: I64 = np.asarray(chosen, np.int64)
        samples = [self.samples[int(i)] for i in at]
        return SampleTable(tuple(samples), self.member[at], self.group[at], self.label_counts[at], self.rows.only(at))

    def cut(self, most: int) -> SampleTable:
        """Samples without what is above `most` rows, and those of which no label is left."""
        rows = self.rows.cut(most)
        made = replace(self, rows=rows, label_counts=rows.label_counts())
        return made.only(np.flatnonzero(made.label_counts))

    def silent(self) -> SampleTable:
        """The same, with no label in the loss."""
        return replace(self, rows=self.rows.silent(), label_counts=np.zeros_like(self.label_counts))


def samples_of(
    groups: Iterable[DrawnGroup],
    *,
    estimator: Estimator = Estimator.GRPO,
    sampling: Sampling | None = None,
    columns: Sequence[str] = (),
) -> SampleTable:
    """The samples of drawn groups (a `Batch`, or some of its groups).

    `sampling`: what records leave unsaid of temperature, top_p and top_k. `columns` names columns of the records, of
    alignment token or sampled, to bring along. Raises SettingsError where payloads weren't asked for, and where a
    member lacks a named column.
    """
    members = [member for number, group in enumerate(groups) for member in _members(number, group, estimator)]
    axis = TokenAxis.of([member.trajectory for member in members])
    facts = TokenFacts.of(
        axis,
        runs=[member.drawn.tokens.runs for member in members],
        spans=[member.drawn.verdict.mask_runs for member in members],
        advantages=[member.advantages for member in members],
        sampling=sampling or Sampling(),
        columns=columns,
    )
    paths = [(i, path) for i, one in enumerate(axis.lines().tolist()) for path in _paths(members[i].trajectory, one)]
    rows = _rows(axis, facts, paths)
    counts = rows.label_counts()
    kept = np.flatnonzero(counts)
    owner = np.array([i for i, _ in paths], np.int64)[kept]
    return SampleTable(
        tuple(members[i].sample(path) for i, path in (paths[k] for k in kept.tolist())),
        owner,
        np.array([member.group_index for member in members], np.int64)[owner],
        counts[kept],
        rows.only(kept),
    )


def _members(number: int, group: DrawnGroup, estimator: Estimator) -> Iterable[TrainedMember]:
    """Members of a group of which a token trains."""
    advantages = group_advantages(group, estimator)
    for drawn in group.members:
        if drawn.rollout is None:
            raise SettingsError("the stream was opened without payloads, so there is nothing to pack")
        if drawn.verdict.trainable_tokens:
            trajectory, run = drawn.rollout.trajectory, drawn.rollout.slot.run
            own = [advantages[drawn.member, agent] for agent in range(len(drawn.tokens.agents))]
            yield TrainedMember(drawn, group, number, trajectory, run, own)


def _paths(trajectory: Trajectory, is_line: bool) -> Sequence[Sequence[int]]:
    """The branches that make samples; a line is one, unless its edges say something else."""
    plain = is_line and not trajectory.may_say("semantic_parents")
    return [range(len(trajectory.nodes))] if plain else kept_branches(trajectory)


def _rows(axis: TokenAxis, facts: TokenFacts, paths: Sequence[tuple[int, Sequence[int]]]) -> SampleRows:
    """All tokens of all branches, one branch after another."""
    counts = np.array([len(path) for _, path in paths], np.int64)
    nodes = np.array([node for _, path in paths for node in path], np.int64)
    nodes += np.repeat(axis.first_node[[i for i, _ in paths]], counts)
    return SampleRows.of(facts, counts, nodes, axis.nodes[nodes, TOKENS].astype(np.int64))
