"""What is said on `policy-versions`: timelines, policies and checkpoints (design 3, 4 and 8).

Guarantees: `fold` turns the topic's events, in order, into a `History`. Leaves out: weights and checkpoint files.
"""

from __future__ import annotations

from typing import Any

import orjson

from rolloutlog.contract.events import Event, Outgoing, outgoing
from rolloutlog.contract.ids import id_of
from rolloutlog.contract.policies import History, Policy
from rolloutlog.contract.topics import Topic
from rolloutlog.contract.vocabulary import EventType


def _event(kind: EventType, run: str, body: dict[str, Any], headers: dict[str, Any], source: str, now: int) -> Outgoing:
    text = orjson.dumps({k: v for k, v in body.items() if v is not None}, option=orjson.OPT_SORT_KEYS)
    return outgoing(
        kind, Topic.POLICY_VERSIONS, key=run, event_id=id_of(kind, run, text.decode()), source=source, value=text,
        now=now, headers={"run": run, **headers},
    )  # fmt: skip


def timeline_started(timeline: int, parent: int | None, step: int, *, run: str, source: str, now: int) -> Outgoing:
    """One life of a trainer begins: `step` is the fork step, 0 for a first start."""
    body = {"timeline": timeline, "parent": parent, "step": step}
    return _event(EventType.TIMELINE_STARTED, run, body, {"timeline": timeline, "step": step}, source, now)


def policy_published(
    policy: Policy, *, run: str, source: str, now: int, uri: str | None = None, digest: str | None = None
) -> Outgoing:
    """Weights went out."""
    body = {"timeline": policy.timeline, "version": policy.version, "uri": uri, "digest": digest}
    return _event(EventType.POLICY_PUBLISHED, run, body, {"policy": policy, "step": policy.version}, source, now)


def policy_imported(policy: Policy, *, run: str, source: str, now: int) -> Outgoing:
    """A policy that an importer found; known, never current."""
    body = {"timeline": policy.timeline, "version": policy.version}
    return _event(EventType.POLICY_IMPORTED, run, body, {"policy": policy}, source, now)


def fold(history: History, event: Event) -> None:
    """Fold one event of `policy-versions`; types that say nothing of policies pass. Raises ValueError."""
    kind = event.headers.type
    if kind == EventType.CHECKPOINT_SAVED or event.value is None:
        return
    body: dict[str, Any] = orjson.loads(event.value)
    if kind == EventType.TIMELINE_STARTED:
        history.start(int(body["timeline"]), body.get("parent"), int(body["step"]))
    elif kind == EventType.POLICY_PUBLISHED:
        history.publish(Policy(int(body["timeline"]), int(body["version"])))
    elif kind == EventType.POLICY_IMPORTED:
        history.bring(Policy(int(body["timeline"]), int(body["version"])))
