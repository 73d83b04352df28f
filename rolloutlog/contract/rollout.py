"""A rollout: a slot and what its attempt sampled.

Guarantees: `Rollout.flat` makes the two-node graph of a single-turn producer from the flat lists that TRL, verl and
slime hold. Leaves out: bytes and headers (`events`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from rolloutlog.contract.errors import InvalidRecord
from rolloutlog.contract.node import Logprobs, Mask, Node, Tokens
from rolloutlog.contract.policies import Policy
from rolloutlog.contract.segments import from_versions
from rolloutlog.contract.slot import Slot
from rolloutlog.contract.trajectory import Trajectory
from rolloutlog.contract.vocabulary import RejectReason, Status

Versions = int | Policy | Sequence[int] | Sequence[Policy]


@dataclass(slots=True)
class Rollout:
    """One attempt of one member, ready to publish or just read."""

    slot: Slot
    trajectory: Trajectory
    status: Status = Status.COMPLETED

    @classmethod
    def flat(
        cls, *, prompt_ids: Tokens, response_ids: Tokens, logprobs: Logprobs, versions: Versions, group: str,
        member: int, group_size: int, mask: Mask | None = None, reward: float | None = None, attempt: int = 1,
        record: Mapping[str, Any] | None = None, slot: Mapping[str, Any] | None = None,
    ) -> Rollout:  # fmt: skip
        """A completed rollout from flat lists.

        `mask` is parallel to `response_ids`: 1 for sampled tokens, 0 for tool tokens inside (all ones when None).
        `logprobs` and `versions` are parallel to `response_ids` or hold one entry per sampled token; `versions` is
        also one number or policy for all. A bare version is of timeline 0. `slot` and `record` add what else is
        known. Raises InvalidRecord(lengths) where lengths disagree.
        """
        size = len(response_ids)
        kept = np.ones(size, np.uint8) if mask is None else np.asarray(mask, np.uint8)
        if len(kept) != size:
            raise InvalidRecord(RejectReason.LENGTHS, f"mask has {len(kept)} entries for {size} response tokens")
        sampled = kept.astype(np.bool_)
        policies = _policies(versions, size, int(sampled.sum()))
        response = Node(
            parent=0,
            sampled=True,
            token_ids=response_ids,
            mask=kept,
            logprobs=_compact("logprobs", np.asarray(logprobs, np.float32), sampled),
            segments=from_versions(_compact("versions", policies, sampled)),
        )
        prompt = Node(token_ids=prompt_ids, mask=np.zeros(len(prompt_ids), np.uint8))
        trajectory = Trajectory.build([prompt, response], {"reward": reward, **(record or {})})
        place = Slot(group=group, group_size=group_size, member=member, attempt=attempt, **(slot or {}))
        return cls(place, trajectory)


def _policies(versions: Versions, size: int, sampled: int) -> Any:
    """Policies as an array [size or sampled, 2]."""
    if isinstance(versions, (int, Policy)):
        versions = cast("Sequence[Policy] | Sequence[int]", [versions] * sampled)
    pairs = [v if isinstance(v, tuple) else (0, v) for v in versions]
    return np.asarray(pairs, np.int64).reshape(-1, 2)


def _compact(name: str, values: Any, sampled: Any) -> Any:
    """One entry per sampled token, from that or from one per response token."""
    if len(values) == len(sampled):
        return values[sampled]
    if len(values) == int(sampled.sum()):
        return values
    raise InvalidRecord(
        RejectReason.LENGTHS,
        f"{name} has {len(values)} entries; the response has {len(sampled)} tokens, {int(sampled.sum())} sampled",
    )
