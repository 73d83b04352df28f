"""Events of `group-events`: members that expired, what finally became of each group (design/trainer#finals), and
chunks of the ids of those that ended (design/trainer#watermarks).

Guarantees: a final event names every member that it speaks of by attempt, handle and verdict, the digest of the masks
and `as_of`, the rollouts offset of its partition at the draw, so that a replay can be compared with it. A chunk is of
no group, so who reads by group passes it by. Leaves out: deciding.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

import orjson
from pydantic import AfterValidator, Base64Bytes, BaseModel, ConfigDict, Field, ValidationError

from rolloutlog.contract.events.event import Event, Outgoing, outgoing
from rolloutlog.contract.events.validation import read_attributes, read_json
from rolloutlog.contract.handles import Handle
from rolloutlog.contract.ids import ID_BYTES, digest_of, final_id, id_of
from rolloutlog.contract.numbers import COUNTED, Counted
from rolloutlog.contract.policies import PolicyNumber
from rolloutlog.contract.record.slot import MAX_GROUP
from rolloutlog.contract.topics import Topic
from rolloutlog.contract.vocabulary import DropReason, EventType, RejectReason, Verdict
from rolloutlog.contract.wire.headers import Headers
from rolloutlog.contract.wire.rejection import Rejected, problem_of


def _is_handle(text: str) -> str:
    Handle.parse(text)
    return text


HandleText = Annotated[str, AfterValidator(_is_handle)]
Size = Annotated[int, Field(ge=1, le=MAX_GROUP, strict=True)]
Member = Annotated[int, Field(ge=0, lt=MAX_GROUP, strict=True)]
Steps = Annotated[int, Field(gt=-COUNTED, lt=COUNTED, strict=True)]
"""A difference of steps."""


@dataclass(slots=True, kw_only=True)
class MemberOutcome:
    """One member in a final event: `handle` of the record that stood, and its `reward` at the draw. It is validated
    where it is read, as part of its `GroupFinal`, and not where a trainer makes it. Nobody changes one; it isn't frozen
    since that makes each twice as dear, and a step has hundreds."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    member: Member
    attempt: Counted
    status: str
    handle: HandleText | None = None
    reward: float | None = None
    verdict: Verdict | None = None
    seq_staleness: Steps | None = None
    response_tokens: Counted = 0
    trainable_tokens: Counted = 0


class GroupFinal(BaseModel):
    """`group.trained` (reason None) or `group.dropped`; `settings` is the digest of the trainer's that judged it,
    `detail` what a filter said that dropped it, or why it couldn't be trained. `judged_for` is the step of the source
    for which it was judged, where that isn't `step`: offline (design/trainer#offline)."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    group: str
    group_size: Size
    timeline: PolicyNumber
    step: Counted
    pass_number: Counted = 1
    judged_for: Counted | None = None
    reason: DropReason | None = None
    detail: str | None = None
    as_of: Counted
    masks: str | None = None
    settings: str | None = None
    members: list[MemberOutcome] = Field(default_factory=list[MemberOutcome])

    @property
    def judged_step(self) -> int:
        """The step for which its tokens were judged."""
        return self.step if self.judged_for is None else self.judged_for

    @property
    def event_id(self) -> str:
        """Event id: one final per timeline, step, group and pass."""
        return final_id(self.timeline, self.step, self.group, self.pass_number)


class MemberExpired(BaseModel):
    """`member.expired`: not final; the shard asks for that member again. `tries` counts this one."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    group: str
    group_size: Size
    member: Member
    attempt: Counted
    timeline: PolicyNumber
    step: Counted
    verdict: Verdict
    seq_staleness: Steps | None = None
    tries: Counted = 1
    handle: HandleText | None = None

    @property
    def event_id(self) -> str:
        """Event id: an attempt expires once, whoever says so."""
        return id_of("expired", self.group, self.member, self.attempt)


class GroupsEnded(BaseModel):
    """`groups.ended`: ids of groups that ended, none later than `step`, and where the chunk `before` this one lies."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    timeline: PolicyNumber
    step: Counted
    before: Counted | None = None
    pass_number: Counted = 1
    ids: Base64Bytes

    @property
    def names(self) -> list[bytes]:
        """The ids."""
        return [self.ids[at : at + ID_BYTES] for at in range(0, len(self.ids), ID_BYTES)]


GroupEvent = GroupFinal | MemberExpired


def final_event(final: GroupFinal, *, source: str, now: int, partition: int | None = None) -> Outgoing:
    """`group.trained` or `group.dropped`."""
    kind = EventType.GROUP_TRAINED if final.reason is None else EventType.GROUP_DROPPED
    body = orjson.dumps(final.model_dump(mode="json", exclude_none=True))
    known = {
        "group": final.group,
        "group_size": final.group_size,
        "timeline": final.timeline,
        "step": final.step,
        "pass_number": final.pass_number,
        "reason": final.reason,
        "digest": digest_of(body),
    }
    return outgoing(
        kind,
        Topic.GROUP_EVENTS,
        key=final.group,
        event_id=final.event_id,
        source=source,
        value=body,
        now=now,
        subject=final.group,
        partition=partition,
        headers=known,
    )


def expired_event(expired: MemberExpired, *, source: str, now: int, partition: int | None = None) -> Outgoing:
    """`member.expired`."""
    body = orjson.dumps(expired.model_dump(mode="json", exclude_none=True))
    known = {
        "group": expired.group,
        "group_size": expired.group_size,
        "member": expired.member,
        "attempt": expired.attempt,
        "timeline": expired.timeline,
        "step": expired.step,
        "digest": digest_of(body),
    }
    return outgoing(
        EventType.MEMBER_EXPIRED,
        Topic.GROUP_EVENTS,
        key=expired.group,
        event_id=expired.event_id,
        source=source,
        value=body,
        now=now,
        subject=expired.group,
        partition=partition,
        headers=known,
    )


def ended_event(
    names: Sequence[bytes],
    before: int | None,
    *,
    timeline: int,
    step: int,
    source: str,
    now: int,
    partition: int,
    pass_number: int = 1,
) -> Outgoing:
    """`groups.ended`, on the partition of those groups."""
    ids = b64encode(b"".join(names)).decode()
    where = {} if before is None else {"before": before}
    where |= {} if pass_number == 1 else {"pass_number": pass_number}
    body = orjson.dumps({"timeline": timeline, "step": step, "ids": ids} | where)
    return outgoing(
        EventType.GROUPS_ENDED,
        Topic.GROUP_EVENTS,
        key=EventType.GROUPS_ENDED,
        event_id=id_of(EventType.GROUPS_ENDED, partition, timeline, step, digest_of(body)),
        source=source,
        value=body,
        now=now,
        partition=partition,
        headers={"timeline": timeline, "step": step, "digest": digest_of(body)},
    )


_CHUNK = EventType.GROUPS_ENDED.encode()


def is_chunk(event: Event) -> bool:
    """True for `groups.ended`, by its headers alone."""
    return event.headers.raw.get(Headers.type.name) == _CHUNK


def read_groups_ended(event: Event) -> GroupsEnded:
    """The value of a `groups.ended`. Raises Rejected."""
    read_attributes(event)
    try:
        said = GroupsEnded.model_validate(read_json(event))
    except ValidationError as error:
        raise Rejected(RejectReason.SHAPE, f"{event.headers.type}: {problem_of(error)}") from error
    if len(said.ids) % ID_BYTES:
        raise Rejected(RejectReason.SHAPE, f"{len(said.ids)} bytes of ids, of {ID_BYTES} each")
    return said


def read_group_event(event: Event) -> GroupEvent:
    """The value of an event on `group-events` whose headers were read. Raises Rejected."""
    model = MemberExpired if event.headers.type == EventType.MEMBER_EXPIRED else GroupFinal
    try:
        said = model.model_validate(read_json(event))
    except ValidationError as error:
        raise Rejected(RejectReason.SHAPE, f"{event.headers.type}: {problem_of(error)}") from error
    if said.group != (group := event.headers.group):
        raise Rejected(RejectReason.INCONSISTENT, f"the value is of group {said.group}, its key of {group}")
    if isinstance(said, MemberExpired) and (said.attempt < 1 or not 0 <= said.member < said.group_size):
        raise Rejected(RejectReason.SHAPE, f"member {said.member} of {said.group_size}, attempt {said.attempt}")
    return said
