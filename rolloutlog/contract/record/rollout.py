"""A rollout: a slot and what its attempt sampled.

Guarantees: `Rollout.flat` makes the two-node graph of a single-turn producer from the flat lists that TRL, verl and
slime hold, and refuses what no reader would take. Leaves out: bytes and headers (`events`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from rolloutlog.contract.errors import InvalidRecord
from rolloutlog.contract.policies import Policy
from rolloutlog.contract.record.node import Logprobs, Mask, Node, Tokens
from rolloutlog.contract.record.segments import Segment, from_versions
from rolloutlog.contract.record.slot import Slot, check_slot
from rolloutlog.contract.record.soundness import check_trajectory
from rolloutlog.contract.record.trajectory import Trajectory, mapping
from rolloutlog.contract.vocabulary import RejectReason, Status
from rolloutlog.contract.wire.arrays import exact
from rolloutlog.contract.wire.refusal import refusing

Versions = int | Policy | Sequence[int] | Sequence[Policy]


@dataclass(slots=True)
class Rollout:
    """One attempt of one member, ready to publish or just read."""

    slot: Slot
    trajectory: Trajectory
    status: Status = Status.COMPLETED

    @classmethod
    def flat(
        cls,
        *,
        prompt_ids: Tokens,
        response_ids: Tokens,
        logprobs: Logprobs,
        versions: Versions,
        group: str,
        member: int,
        group_size: int,
        mask: Mask | None = None,
        reward: float | None = None,
        temperature: float | None = None,
        top_p: float | None = None,
        top_k: int | None = None,
        attempt: int = 1,
        record: Mapping[str, Any] | None = None,
        slot: Mapping[str, Any] | None = None,
    ) -> Rollout:
        """A completed rollout from flat lists.

        `mask` is parallel to `response_ids`: 1 for sampled tokens, 0 for tool tokens inside (all ones when None).
        `logprobs` and `versions` are parallel to `response_ids` or hold one entry per sampled token; `versions` is
        also one number or policy for all. A bare version is of timeline 0. `temperature`, `top_p` and `top_k` are what
        the engine sampled with (None: unsaid). `slot` and `record` add what else is known. Raises InvalidRecord, with
        the reason, for everything that a reader would reject.
        """
        with refusing():
            place = Slot(group=group, group_size=group_size, member=member, attempt=attempt, **mapping("slot", slot))
            check_slot(place)
            place.headers()
            facts = {"reward": reward, **mapping("record", record)}
            prompt, answer = _two_nodes(prompt_ids, response_ids, logprobs, versions, mask)
            answer.facts = _sampling(temperature=temperature, top_p=top_p, top_k=top_k)
            trajectory = Trajectory.build([prompt, answer], facts)
            check_trajectory(trajectory)
            return cls(place, trajectory)


def _two_nodes(
    prompt_ids: Tokens, response_ids: Tokens, logprobs: Logprobs, versions: Versions, mask: Mask | None
) -> tuple[Node, Node]:
    """A prompt and its answer. Raises InvalidRecord."""
    prompt, response = exact("prompt_ids", prompt_ids, np.int32), exact("response_ids", response_ids, np.int32)
    kept = np.ones(len(response), np.uint8) if mask is None else exact("mask", mask, np.uint8)
    if len(kept) != len(response):
        raise InvalidRecord(RejectReason.LENGTHS, f"mask has {len(kept)} entries for {len(response)} response tokens")
    sampled = kept.astype(np.bool_)
    answer = Node(
        parent=0,
        sampled=True,
        token_ids=response,
        mask=kept,
        logprobs=_compact("logprobs", exact("logprobs", logprobs, np.float32), sampled),
        segments=_segments(versions, sampled),
    )
    return Node(token_ids=prompt, mask=np.zeros(len(prompt), np.uint8)), answer


def _sampling(**said: object) -> dict[str, float]:
    """What an engine sampled with, as a node says it. Raises InvalidRecord."""
    for name, value in said.items():
        if value is not None and (
            isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < np.inf
        ):
            raise InvalidRecord(RejectReason.SHAPE, f"{name} is a number that isn't negative, not {value!r}")
    return {name: value for name, value in said.items() if isinstance(value, int | float)}


def _segments(versions: Versions, sampled: npt.NDArray[np.bool_]) -> list[Segment]:
    """Segments of the sampled tokens."""
    if isinstance(versions, (int, np.integer)) and not isinstance(versions, bool):
        versions = Policy(0, int(versions))
    if isinstance(versions, Policy):
        return [(versions.timeline, versions.version, 0)] if sampled.any() else []
    if isinstance(versions, Sequence) and len(versions) and isinstance(versions[0], tuple):
        policies = exact("versions", versions, np.int64, 2)
    else:
        numbers = exact("versions", versions, np.int64)
        policies = np.stack([np.zeros_like(numbers), numbers], axis=1)
    return from_versions(_compact("versions", policies, sampled))


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
