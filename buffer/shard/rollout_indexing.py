"""From records of rollouts to their rows (design/exactly-once#index).

Guarantees: pure; any bytes give a row or `Rejected`. Leaves out: headers, and events that are no records (`indexing`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, ParamSpec, TypeVar

from rolloutlog.buffer.derivations.anchor_type import AnchorType
from rolloutlog.buffer.index.rollout_row import RolloutRow
from rolloutlog.buffer.index.rows import Row
from rolloutlog.buffer.sources.eligibility import Eligibility, eligibility_of
from rolloutlog.contract.events.body import Resolved
from rolloutlog.contract.events.event import Event
from rolloutlog.contract.events.validation import read_facts
from rolloutlog.contract.record.rollout import Rollout
from rolloutlog.contract.record.slot import Slot
from rolloutlog.contract.wire.rejection import Rejected

Given = ParamSpec("Given")
Made = TypeVar("Made")


class Found(NamedTuple):
    """The row of an event; `faults` says of each type of derivation why nothing can be derived by it from the sound
    record that it describes; under "" of all."""

    row: Row
    faults: Mapping[str, str] = {}


def or_rejected(work: Callable[Given, Made], *args: Given.args, **named: Given.kwargs) -> Made | Rejected:
    """What the work makes of that, or why it can't."""
    try:
        return work(*args, **named)
    except Rejected as rejected:
        return rejected


def rollout_rows(
    records: Sequence[tuple[Event, Resolved | None]], types: Sequence[AnchorType]
) -> list[Found | Rejected]:  # fmt: skip
    """Rows of events of records whose headers were read, each with the body that it has, if it isn't the one that it
    carries."""
    read = [or_rejected(read_facts, event, body) for event, body in records]
    judged = [said if isinstance(said, Rejected) else (*said, eligibility_of(said[0], types)) for said in read]
    return [
        said if isinstance(said, Rejected) else or_rejected(_found, event, *said)
        for (event, _), said in zip(records, judged, strict=True)
    ]


def _found(event: Event, rollout: Rollout, facts: Mapping[str, Any], fit: Eligibility) -> Found:
    """Raises Rejected for a header that isn't its slot's, and can't be read."""
    slot, trajectory = rollout.slot, rollout.trajectory
    row = RolloutRow(
        offset=event.offset,
        size=event.handle.size,
        timestamp=event.timestamp,
        group=slot.group,
        group_size=slot.group_size,
        needed=slot.needed,
        member=slot.member,
        attempt=slot.attempt,
        status=rollout.status,
        kind=slot.kind,
        sha256=bytes.fromhex(facts["digest"]),
        reward=trajectory.reward,
        tokens=facts["tokens"],
        sampled=trajectory.response_tokens,
        turns=facts["turns"],
        oldest=facts["oldest_policy"],
        newest=facts["newest_policy"],
        origin=slot.origin_seed,
        origin_offset=slot.origin_offset,
        source=slot.trace,
        env=slot.env,
        derivation=slot.derivation,
        depth=slot.depth or 0,
        stop=_short(trajectory.record.get("stop_condition")),
        container=fit.container,
        unfit=fit.unfit or "",
        packed=fit.packed,
        step=event.headers.step if event.headers.step is not None else slot.dispatch_step,
        branches=facts["branches"],
        faulty=tuple(sorted(filter(None, fit.faults))),
        snapshots=fit.snapshots,
        replay_env=_names_replay_env(slot, trajectory.record),
    )
    return Found(row, fit.faults)


def _names_replay_env(slot: Slot, record: Mapping[str, Any]) -> bool:
    """True for what another tool's replay environment derived: its own name is all that was recorded. What was derived
    here has the innermost environment's, on whatever log it is (decisions/replay#7 and #88)."""
    is_ours = "source_reward" in record and "replay_task" not in record
    return slot.derivation is not None and slot.origin_seed is None and not is_ours


def _short(text: str | None) -> str | None:
    return None if text is None else text[:100]
