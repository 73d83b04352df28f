"""Which rollouts may be sources of which derivation, and why the others are skipped (design/buffer#selection).

Guarantees: a record is screened once; what doesn't depend on settings is in its row, and a skip has one reason. Leaves
out: the reward band, which late annotations move (`screening`), and which source is drawn (`draws`).
"""

from __future__ import annotations

from typing import Any, cast

from rolloutlog.buffer.derivations.catalogue import derivation_of
from rolloutlog.buffer.derivations.protocol import AnchorPoint
from rolloutlog.buffer.index.packed_anchors import places_of
from rolloutlog.buffer.index.rollout_row import RolloutRow
from rolloutlog.buffer.index.skip import Skip
from rolloutlog.buffer.sources.source_rule import SourceRule
from rolloutlog.contract.record.rollout import Rollout
from rolloutlog.contract.settings import DerivationSettings, Selection
from rolloutlog.contract.vocabulary import RunKind, Status


def unfit(rollout: Rollout) -> Skip | None:
    """Why a rollout can never be a source, whatever the settings; None if it can (decisions/replay#21)."""
    trajectory = rollout.trajectory
    if not len(trajectory.nodes):
        return Skip.EMPTY
    if trajectory.record.get("errors"):
        return Skip.ERRORED
    if rollout.status is not Status.COMPLETED:
        return Skip.UNFINISHED
    if not any(trajectory.sampled_nodes):
        return Skip.UNSAMPLED
    return Skip.NO_MESSAGES if None in trajectory.messages else None


def needs_container(record: dict[str, Any]) -> bool:
    """True if the innermost task ran in a container image, whose state is gone (decisions/replay#8)."""
    task = record.get("task")
    if not isinstance(task, dict):
        return False
    said = cast("dict[str, Any]", task)
    data = said.get("data")
    return bool(said.get("image")) or (isinstance(data, dict) and bool(cast("dict[str, Any]", data).get("image")))


def anchors_for(row: RolloutRow, settings: DerivationSettings, seq_len: int | None = None) -> list[AnchorPoint] | Skip:
    """Where that derivation may resume this source, or why it may not."""
    return skip_of(row, settings) or SourceRule(settings, seq_len).points(places_of(row.packed), row.snapshots)


def skip_of(row: RolloutRow, settings: DerivationSettings) -> Skip | None:
    """Why a record is no source of that derivation, wherever in it; it depends on what records share
    (`packed_row.shared_facts`)."""
    select, derive = settings.select, derivation_of(settings.derive)
    if row.kind is RunKind.EVAL and not select.eval:
        return Skip.EVAL
    if row.unfit:
        return Skip(row.unfit)
    if not row.env:
        return Skip.NO_ENV
    if row.container and derive.needs_environment and not select.allow_container:
        return Skip.CONTAINER
    if (skip := _environment(row, select)) is not None:
        return skip
    if row.depth >= select.max_depth:
        return Skip.TOO_DEEP
    return Skip.REJECTED if derive.type in row.faulty else None


def _environment(row: RolloutRow, select: Selection) -> Skip | None:
    """`source_envs` names `env` or `env/derivation`, or a replay environment of another tool by its own name; unset:
    all, but nothing that is itself derived (decisions/replay#7)."""
    if select.source_envs is None:
        return Skip.REPLAYED if row.derivation else None
    label = f"{row.env}/{row.derivation}" if row.derivation else row.env
    if label in select.source_envs or (row.replay_env and row.env in select.source_envs):
        return None
    return Skip.REPLAYED if row.derivation and row.env in select.source_envs else Skip.FOREIGN


def in_band(reward: float | None, select: Selection) -> bool:
    """True if a recorded reward lies in the inclusive band; a pending one lies in none but the open
    (decisions/replay#13)."""
    low, high = select.min_source_reward, select.max_source_reward
    if reward is None:
        return low is None and high is None
    return (low is None or reward >= low) and (high is None or reward <= high)
