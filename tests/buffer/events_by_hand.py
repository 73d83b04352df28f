"""Events by hand for tests of the shard: short words for what workers, feeders and trainers say."""

from __future__ import annotations

from typing import Any

from rolloutlog.contract.events.event import Outgoing, annotation_event, cancelled_event, rollout_event, taken_event
from rolloutlog.contract.events.group_events import GroupFinal, MemberExpired, expired_event, final_event
from rolloutlog.contract.events.seeds import Seed, seed_event
from rolloutlog.contract.record.node import Node
from rolloutlog.contract.record.rollout import Rollout
from rolloutlog.contract.record.slot import Slot
from rolloutlog.contract.record.trajectory import Trajectory
from rolloutlog.contract.vocabulary import DropReason, SeedKind, Status, Verdict
from tests.buffer.partition_log import NOW, group_id
from tests.buffer.recorded import say

SIZE = 2
LEASE_MS = 60_000
UNREAD = 1 << 40
"""An offset on `seeds` that nobody reads past: an origin seed may still come."""


def seed_id(name: str) -> str:
    """Id of the origin seed of a group."""
    return f"seed-of-{name}"


def slot(name: str, member: int = 0, attempt: int = 1, **facts: Any) -> Slot:
    """A slot of a group that a fresh seed asked for; `origin_seed=None` for an imported one."""
    known: dict[str, Any] = {
        "group": group_id(name),
        "group_size": SIZE,
        "member": member,
        "attempt": attempt,
        "env": "sums",
        "origin_seed": seed_id(name),
        "origin_offset": UNREAD,
    }
    return Slot(**{**known, **facts})


def tool_turns(count: int, text: str = "") -> list[Node]:
    """A conversation with so many whole tool turns and a last answer."""
    nodes = [say("system", "s"), say("user", "task " + text, 0)]
    for _ in range(count):
        nodes.append(say("assistant", "let me look", len(nodes) - 1, calls="a"))
        nodes.append(say("tool", "found", len(nodes) - 1, answers="a"))
    return [*nodes, say("assistant", "answer", len(nodes) - 1)]


def rollout(
    name: str,
    member: int = 0,
    attempt: int = 1,
    *,
    reward: float | None = 1.0,
    status: Status = Status.COMPLETED,
    turns: int = 2,
    nodes: list[Node] | None = None,
    record: dict[str, Any] | None = None,
    **facts: Any,
) -> Outgoing:
    """A record of an attempt."""
    known = {"reward": reward, "task": {"prompt": "task"}, **(record or {})}
    trajectory = Trajectory.build(tool_turns(turns) if nodes is None else nodes, known)
    return rollout_event(Rollout(slot(name, member, attempt, **facts), trajectory, status), source="/tests", now=NOW)


def forged(made: Outgoing) -> Outgoing:
    """The same headers with a value that can't be read."""
    return Outgoing(made.topic, made.key, [h for h in made.headers if h[0] != "ce_digest"], b"junk", None, NOW)


def annotated(name: str, member: int = 0, attempt: int = 1, **facts: Any) -> Outgoing:
    """Late facts about an attempt."""
    return annotation_event(slot(name, member, attempt), facts, source="/tests", now=NOW)


def fresh(name: str, **facts: Any) -> Outgoing:
    """A fresh seed for a group."""
    known: dict[str, Any] = {
        "id": seed_id(name),
        "kind": SeedKind.FRESH,
        "group": group_id(name),
        "group_size": SIZE,
        "env": "sums",
        "budget": 100,
        "task": {"prompt": "task"},
    }
    return seed_event(Seed(**{**known, **facts}), source="/tests", now=NOW)


def taken(name: str, worker: str = "w1", renewal: int = 0, seed: str | None = None) -> Outgoing:
    """A worker takes the origin seed of a group, or another seed of it."""
    return taken_event(
        group=group_id(name),
        group_size=SIZE,
        seed=seed or seed_id(name),
        worker=worker,
        renewal=renewal,
        lease_ms=LEASE_MS,
        source="/tests",
        now=NOW,
    )


def cancelled(name: str, members: list[int], reason: str = "given up") -> Outgoing:
    """Those members get no record."""
    return cancelled_event(
        group=group_id(name), group_size=SIZE, members=members, reason=reason, source="/tests", now=NOW
    )


def final(name: str, as_of: int = 1000, reason: DropReason | None = None) -> Outgoing:
    """The group's final event."""
    ended = GroupFinal(group=group_id(name), group_size=SIZE, timeline=0, step=1, as_of=as_of, reason=reason)
    return final_event(ended, source="/tests", now=NOW)


def expired(name: str, member: int = 0, attempt: int = 1) -> Outgoing:
    """A member is too old to train."""
    said = MemberExpired(
        group=group_id(name),
        group_size=SIZE,
        member=member,
        attempt=attempt,
        timeline=0,
        step=1,
        verdict=Verdict.EXPIRED,
    )
    return expired_event(said, source="/tests", now=NOW)
