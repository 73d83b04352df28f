"""Events of `policy-versions`: timelines, policies and checkpoints (design/trainer#timelines).

Guarantees: `fold` turns the topic's events, in order, into a `History`, and gives where the weights of a policy and the
file of a checkpoint lie, which no history keeps. Leaves out: weights and files.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import orjson
from pydantic import BaseModel, ConfigDict, ValidationError

from rolloutlog.contract.events.event import Event, Outgoing, outgoing
from rolloutlog.contract.events.validation import read_attributes, read_json
from rolloutlog.contract.events.watermarks import Watermarks
from rolloutlog.contract.ids import id_of
from rolloutlog.contract.policies import History, Policy, PolicyNumber
from rolloutlog.contract.topics import Topic
from rolloutlog.contract.vocabulary import EventType, RejectReason
from rolloutlog.contract.wire.rejection import Rejected, problem_of


class _Started(BaseModel):
    """Value of `timeline.started`."""

    model_config = ConfigDict(extra="forbid")

    timeline: PolicyNumber
    parent: PolicyNumber | None = None
    step: PolicyNumber


class _PolicyBody(BaseModel):
    """Value of `policy.published` and `policy.imported`."""

    model_config = ConfigDict(extra="forbid")

    timeline: PolicyNumber
    version: PolicyNumber
    uri: str | None = None
    digest: str | None = None


@dataclass(slots=True, frozen=True)
class PublishedPolicy:
    """A policy, and where its weights lie, as the trainer said when it published them."""

    policy: Policy
    uri: str | None
    """Where the weights lie; None if the trainer didn't say."""
    digest: str | None
    """Of the weights, in the trainer's own words."""
    published_ms: int
    """When, in milliseconds since 1970."""


class SavedCheckpoint(Watermarks):
    """`checkpoint.saved`: the state after a step lies at `uri`; a resume reads the topics from its watermarks on."""

    uri: str
    digest: str | None = None
    """Of the file, in the trainer's own words."""

    @property
    def policy(self) -> Policy:
        """The weights that it holds."""
        return Policy(self.timeline, self.step)


def _event(kind: EventType, run: str, body: dict[str, Any], headers: dict[str, Any], source: str, now: int) -> Outgoing:
    text = orjson.dumps({k: v for k, v in body.items() if v is not None}, option=orjson.OPT_SORT_KEYS)
    return outgoing(
        kind,
        Topic.POLICY_VERSIONS,
        key=run,
        event_id=id_of(kind, run, text.decode()),
        source=source,
        value=text,
        now=now,
        headers={"run": run, **headers},
    )


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


def checkpoint_saved(saved: SavedCheckpoint, *, run: str, source: str, now: int) -> Outgoing:
    """The state after a step was written down."""
    headers = {"timeline": saved.timeline, "step": saved.step}
    return _event(EventType.CHECKPOINT_SAVED, run, saved.model_dump(exclude_none=True), headers, source, now)


def fold(history: History, event: Event) -> PublishedPolicy | SavedCheckpoint | None:
    """Fold one event of `policy-versions`; what it publishes or saves, if it does. Raises Rejected.

    A rejected event leaves the history as it was.
    """
    kind = read_attributes(event)
    body = read_json(event)
    try:
        if kind is EventType.TIMELINE_STARTED:
            started = _Started.model_validate(body)
            history.start(started.timeline, started.parent, started.step)
            return None
        if kind is EventType.CHECKPOINT_SAVED:
            return SavedCheckpoint.model_validate(body)
        said = _PolicyBody.model_validate(body)
        policy = Policy(said.timeline, said.version)
        if kind is not EventType.POLICY_PUBLISHED:
            history.add_imported(policy)
            return None
        history.publish(policy)
        return PublishedPolicy(policy, said.uri, said.digest, event.timestamp)
    except ValidationError as error:
        raise Rejected(RejectReason.SHAPE, f"{kind}: {problem_of(error)}") from error
