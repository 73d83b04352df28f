"""Seeds with their lineage: immediate source, innermost task, depth, and the draw that chose it (design/buffer#lineage,
decisions/replay#85).

Guarantees: a seed is a function of its source's record, the draw and the settings, byte for byte; a member seed names
its origin, so all members of a group descend from one. Leaves out: choosing (`draws`, `re_emission`).
"""

from __future__ import annotations

from typing import Any, cast

import orjson

from rolloutlog.buffer.derivations.catalogue import derivation_of
from rolloutlog.buffer.derivations.main_agent import base_of, main_agent
from rolloutlog.buffer.derivations.snapshots import snapshots_of
from rolloutlog.buffer.group.open_group import OpenGroup
from rolloutlog.buffer.group.re_emission import MemberRetry
from rolloutlog.buffer.index.rollout_row import RolloutRow
from rolloutlog.buffer.sources.candidates import Candidate, SourceFacts
from rolloutlog.contract.events import seeds
from rolloutlog.contract.events.seeds import Anchor, Ask, Draw, Seed
from rolloutlog.contract.ids import derived_group_id, derived_seed_id, id_of, member_seed_id, rollout_id
from rolloutlog.contract.record.trajectory import Trajectory
from rolloutlog.contract.settings import BufferSettings, DerivationSettings

LEAST_GROUP = 2
"""One member has nobody to be compared with."""


def derived_seed(
    source: SourceFacts,
    candidate: Candidate,
    trajectory: Trajectory,
    draw: Draw,
    *,
    settings: DerivationSettings,
    buffer: BufferSettings,
    partition: int,
    partitions: int,
) -> Seed:
    """A seed for one new group on the source's partition; `candidate.draws` counts the draws before this one."""
    row, point, derivation = source.row, candidate.point, derivation_of(settings.derive)
    tokens = derivation.tokens(point)
    rollout = f"{row.namespace}:" * bool(row.namespace) + rollout_id(row.group, row.member)  # both logs may have it
    made = derived_seed_id(derivation.type, rollout, row.attempt, point.node, settings_id(settings), candidate.draws)
    size, needed = _size(row, settings, buffer)
    return Seed(
        id=made,
        kind=derivation.type,
        group=derived_group_id(made, partition, partitions),
        group_size=size,
        group_train=needed,
        env=row.env or "",
        derivation=settings.name,
        task=_task(trajectory),
        messages=derivation.prompt(trajectory, point),
        source=source_of(source, partition, trajectory),
        anchor=Anchor(kind=point.kind, node=point.node),
        depth=row.depth + 1,
        tokens=tokens,
        budget=_room(tokens, settings, buffer),
        draw=draw,
        snapshot=snapshots_of(trajectory).get(point.node) if derivation.needs_environment else None,
    )


def _size(row: RolloutRow, settings: DerivationSettings, buffer: BufferSettings) -> tuple[int, int | None]:
    """Members of the new group, and how many are needed where not all are: as of the source's group, but never one."""
    if settings.group_size is not None:
        return settings.group_size, None
    if row.group_size < LEAST_GROUP:
        return buffer.group_size, None
    return row.group_size, row.needed if row.needed != row.group_size else None


def _room(tokens: int, settings: DerivationSettings, buffer: BufferSettings) -> int | None:
    """New tokens that a member may sample: as said, else what the prompt leaves of a sequence (decisions/replay#19)."""
    if settings.budget is not None or buffer.seq_len is None:
        return settings.budget
    return buffer.seq_len - tokens


def source_of(source: SourceFacts, partition: int, trajectory: Trajectory) -> seeds.Source:
    """What a seed says of its immediate source; where it was imported, with the trace of its main agent."""
    row = source.row
    trace = row.source if row.origin is None else None
    if isinstance(own := main_agent(trajectory).get("trace"), str):
        trace = own
    return seeds.Source(
        rollout=rollout_id(row.group, row.member),
        attempt=row.attempt,
        handle=str(row.handle(partition)),
        digest=row.digest,
        reward=source.reward,
        step=row.step,
        trace=trace,
        base=base_of(trajectory),
        oldest_policy=None if row.oldest is None else str(row.oldest),
    )


def _task(trajectory: Trajectory) -> dict[str, Any] | None:
    """The innermost task, verbatim: a derived record carries it in place of its own (decisions/replay#85)."""
    task: Any = trajectory.record.get("task")
    return cast("dict[str, Any]", task) if isinstance(task, dict) else None


def settings_id(settings: DerivationSettings) -> str:
    """Digest of one derivation's settings, but for how much is drawn of it."""
    text = orjson.dumps(settings.model_dump(mode="json", exclude={"share"}), option=orjson.OPT_SORT_KEYS)
    return id_of("derivation", text.decode())


def member_seed(opened: OpenGroup, origin: Seed, retry: MemberRetry) -> Seed:
    """A seed that asks for one member of an open group: what the origin asked, at a higher attempt."""
    prefix = retry.prefix
    return Seed(
        id=member_seed_id(origin.group, retry.member, retry.attempt),
        kind=retry.kind,
        group=origin.group,
        group_size=origin.group_size,
        group_train=origin.group_train,
        run_kind=origin.run_kind,
        env=origin.env,
        derivation=origin.derivation,
        source=origin.source,
        anchor=origin.anchor,
        depth=origin.depth,
        budget=_budget(origin, 0 if prefix is None else prefix.sampled),
        asks=[Ask(member=retry.member, attempt=retry.attempt)],
        prefix=None if prefix is None else str(prefix.handle),
        prefix_digest=None if prefix is None else prefix.digest,
        origin_seed=origin.id,
        origin_offset=opened.seed_offset,
        dispatch_step=origin.dispatch_step,
    )


def _budget(origin: Seed, sampled: int) -> int | None:
    """New tokens that are left after those that the prefix sampled."""
    return None if origin.budget is None else max(0, origin.budget - sampled)
