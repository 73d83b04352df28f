"""Samples of drawn groups as columns: one per trainable branch, every column aligned with `labels`
(design/trainer#tensors).

Guarantees: a token's advantage, log-prob and policy are its own whatever is masked before it
(decisions/staleness#138); a sampled node that several branches share trains once, in the first; a sample in which
nothing trains isn't there. Leaves out: torch (`tensors`), and which samples make a pack (`micro_batches`). The first
token of a branch has nothing before it and is no label.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from rolloutlog.contract.errors import SettingsError
from rolloutlog.contract.handles import Handle
from rolloutlog.contract.record.declared_edges import kept_branches
from rolloutlog.contract.record.trajectory import AGENT, TOKENS, Trajectory
from rolloutlog.contract.wire.arrays import Array
from rolloutlog.trainer.batches.advantages import Estimator, group_advantages
from rolloutlog.trainer.batches.sampling import NAMES, Sampling
from rolloutlog.trainer.batches.token_axis import I64, Floats, TokenAxis, ranges
from rolloutlog.trainer.dispatch.batch import DrawnGroup, DrawnMember
from rolloutlog.trainer.staleness.mask_runs import Bools

IGNORED = -100
"""Label of a token that isn't in the loss."""


@dataclass(slots=True, frozen=True)
class PackedSample:
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


@dataclass(slots=True, frozen=True)
class TrainedMember:
    """A member that trains, with the number of its group in the batch and its agents' advantages."""

    drawn: DrawnMember
    group: DrawnGroup
    group_index: int
    trajectory: Trajectory
    run: str | None
    advantages: Floats

    def sample(self, path: Sequence[int]) -> PackedSample:
        """The sample of one of its branches."""
        record = self.trajectory.record
        return PackedSample(
            run=self.run,
            group=self.group.id,
            member=self.drawn.member,
            attempt=self.drawn.attempt,
            handle=self.drawn.handle,
            leaf=path[-1],
            agent=int(self.trajectory.nodes[path[-1], AGENT]),
            reward=self.drawn.reward,
            truncated=self.drawn.tokens.truncated,
            stop_condition=record.get("stop_condition"),
        )


@dataclass(slots=True, frozen=True)
class SampleTable:
    """S samples of T tokens. Sample `i` is the `lengths[i]` rows from `starts[i]` on; `columns` hold a row per token,
    `member` and `group` number each sample's member and group in the batch."""

    samples: tuple[PackedSample, ...]
    lengths: I64
    member: I64
    group: I64
    columns: dict[str, Array]

    @property
    def starts(self) -> I64:
        """First row of each sample."""
        return np.cumsum(self.lengths) - self.lengths

    @property
    def label_counts(self) -> I64:
        """Labels in the loss, of each sample."""
        labels = np.r_[0, np.cumsum(self.columns["labels"] != IGNORED)]
        return labels[self.starts + self.lengths] - labels[self.starts]

    def only(self, chosen: Sequence[int] | I64) -> SampleTable:
        """Those samples, in that order."""
        picked = np.asarray(chosen, np.int64)
        rows = ranges(self.starts[picked], self.lengths[picked])
        samples = tuple(self.samples[int(i)] for i in picked)
        columns = {name: column[rows] for name, column in self.columns.items()}
        return SampleTable(samples, self.lengths[picked], self.member[picked], self.group[picked], columns)


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
    tokens = _columns(axis, members, sampling or Sampling()) | {name: axis.named(name) for name in columns}
    paths = [(i, path) for i, m in enumerate(members) for path in kept_branches(m.trajectory)]
    index, sizes = _index(axis, paths)
    inner, lengths = np.repeat(sizes > 1, sizes), np.maximum(sizes - 1, 0)
    before, label = index[inner & ~_last(sizes)], index[inner & ~_first(sizes)]
    used = _trains_here(tokens.pop("trained"), label, once=len(paths) == len(members))
    kept = np.bincount(np.repeat(np.arange(len(paths)), lengths), used, len(paths)) > 0
    rows, owner = np.repeat(kept, lengths), np.array([i for i, _ in paths], np.int64)[kept]
    before, label, used = before[rows], label[rows], used[rows]
    ids = tokens.pop("token_ids")
    made = {name: column[label] for name, column in tokens.items()}
    made["advantages"] = made["advantages"] * used
    made |= {"input_ids": ids[before], "labels": np.where(used, ids[label], IGNORED)}
    return SampleTable(
        tuple(members[i].sample(path) for keep, (i, path) in zip(kept.tolist(), paths, strict=True) if keep),
        lengths[kept],
        owner,
        np.array([m.group_index for m in members], np.int64)[owner],
        made,
    )


def _members(number: int, group: DrawnGroup, estimator: Estimator) -> Iterable[TrainedMember]:
    """Members of a group of which a token trains."""
    advantages = group_advantages(group, estimator)
    for drawn in group.members:
        if drawn.rollout is None:
            raise SettingsError("the stream was opened without payloads, so there is nothing to pack")
        if drawn.verdict.trainable_tokens:
            trajectory, run = drawn.rollout.trajectory, drawn.rollout.slot.run
            agents = int(trajectory.nodes[:, AGENT].max(initial=0)) + 1
            own = np.array([advantages[drawn.member, agent] for agent in range(agents)])
            yield TrainedMember(drawn, group, number, trajectory, run, own)


def _columns(axis: TokenAxis, members: Sequence[TrainedMember], sampling: Sampling) -> dict[str, Array]:
    """What is known of each token of the members."""
    policies, drawn = axis.policies(), axis.sampling(sampling)
    return {
        "token_ids": axis.tokens(),
        "trained": axis.trained([member.drawn.verdict.mask_runs for member in members]),
        "behaviour_logprobs": axis.logprobs(),
        "advantages": axis.by_agent([member.advantages for member in members]),
        "timelines": policies[:, 0],
        "versions": policies[:, 1],
    } | {name: drawn[:, i] for i, name in enumerate(NAMES)}


def _index(axis: TokenAxis, paths: Sequence[tuple[int, list[int]]]) -> tuple[I64, I64]:
    """Tokens of all branches, one branch after another, and how many each has."""
    counts = np.array([len(path) for _, path in paths], np.int64)
    nodes = np.array([node for _, path in paths for node in path], np.int64)
    nodes += np.repeat(axis.first_node[[i for i, _ in paths]], counts)
    tokens = axis.nodes[nodes, TOKENS].astype(np.int64)
    ends = np.r_[0, np.cumsum(tokens)][np.r_[0, np.cumsum(counts)]]
    return ranges(axis.starts[nodes], tokens), np.diff(ends)


def _first(sizes: I64) -> Bools:
    """The first of each run of rows."""
    made = np.zeros(int(sizes.sum()), np.bool_)
    made[(np.cumsum(sizes) - sizes)[sizes > 0]] = True
    return made


def _last(sizes: I64) -> Bools:
    """The last of each run of rows."""
    made = np.zeros(int(sizes.sum()), np.bool_)
    made[(np.cumsum(sizes) - 1)[sizes > 0]] = True
    return made


def _trains_here(trained: Bools, label: I64, *, once: bool) -> Bools:
    """Which labels are in the loss: where a token is a label several times, the first time alone. `once`: none is."""
    used = trained[label]
    if not once:
        rows = np.flatnonzero(used)
        _, first = np.unique(label[rows], return_index=True)
        used = np.zeros(len(label), np.bool_)
        used[rows[first]] = True
    return used
