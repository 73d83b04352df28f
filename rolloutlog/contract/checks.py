"""The one validator of what comes from foreign bytes, used by producers, buffer, trainer and audit alike (design 4).

Guarantees: `read_rollout` either returns a sound rollout or raises `Rejected` with one reason; it never crashes on
any bytes, and two readers never disagree, since it is pure. The cost is a plain loop over nodes and whole columns.
Leaves out: what needs more than the record itself: origin seeds and repeated attempts
(`rolloutlog.buffer.membership`), and policies that were never published, which is the trainer's test alone.
"""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import numpy.typing as npt
import orjson

from rolloutlog.contract import graph, value
from rolloutlog.contract.claims import CLAIM
from rolloutlog.contract.events import SCHEMA, Event
from rolloutlog.contract.headers import SPEC_VERSION, HeaderError, Headers, check_names
from rolloutlog.contract.ids import digest_of
from rolloutlog.contract.partitions import partition_of
from rolloutlog.contract.provenance import STATUS_OF, derived, disagreement
from rolloutlog.contract.rollout import Rollout
from rolloutlog.contract.segments import bad_segments
from rolloutlog.contract.slot import Slot
from rolloutlog.contract.topics import Topic
from rolloutlog.contract.trajectory import AGENT, PARENT, SAMPLED, SEGMENTS, TOKENS, Trajectory
from rolloutlog.contract.vocabulary import RESOLVES_SLOT, EventType, RejectReason

TOPIC_OF: dict[Topic, frozenset[EventType]] = {
    Topic.ROLLOUTS: frozenset(
        {
            EventType.SEED_TAKEN,
            EventType.ROLLOUT_COMPLETED,
            EventType.ROLLOUT_ABORTED,
            EventType.ROLLOUT_FAILED,
            EventType.ROLLOUT_ANNOTATED,
            EventType.GROUP_CANCELLED,
        }
    ),
    Topic.SEEDS: frozenset({EventType.SEED_EMITTED, EventType.SEED_CANCELLED}),
    Topic.GROUP_EVENTS: frozenset({EventType.MEMBER_EXPIRED, EventType.GROUP_TRAINED, EventType.GROUP_DROPPED}),
}
_TYPES = {topic: {str(known): known for known in types} for topic, types in TOPIC_OF.items()}
MAX_GROUP = 1 << 20


class Rejected(ValueError):
    """A record is bad: `reason` and detail go to the dead letters; `resolves` says whether its slot ends as failed."""

    def __init__(self, reason: RejectReason, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason
        self.detail = detail

    @property
    def resolves(self) -> bool:
        """True where the reason lies in the value, so that the headers' slot ends as failed(rejected)."""
        return self.reason in RESOLVES_SLOT


def read_headers(event: Event, partitions: int | None = None) -> EventType:
    """Check headers, key and partition of an event on one of the three input topics. Raises Rejected.

    `partitions` None leaves the partition unchecked (a producer before it knows P).
    """
    headers = event.headers
    try:
        check_names(headers)
        if headers.spec_version not in (None, SPEC_VERSION):
            raise HeaderError(RejectReason.HEADER_MALFORMED, f"CloudEvents {headers.spec_version}, not {SPEC_VERSION}")
        for field in (Headers.id, Headers.source, Headers.content_type, Headers.group):
            headers.require(field)
        schema = headers.require(Headers.schema_version)
        event_type = _event_type(event, headers.require(Headers.type))
        _check_slot(event_type, headers)
    except HeaderError as error:
        raise Rejected(error.reason, str(error)) from error
    if schema > SCHEMA[event_type]:
        raise Rejected(
            RejectReason.SCHEMA_NEWER, f"{event_type} of schema {schema}; this reader knows {SCHEMA[event_type]}"
        )
    group = cast("str", headers.group)
    if event.key != group.encode():
        raise Rejected(RejectReason.KEY, f"key {(event.key or b'')[:80]!r} isn't the group {group[:80]!r}")
    if partitions is not None and partition_of(group, partitions) != event.partition:
        raise Rejected(
            RejectReason.PARTITION, f"group {group} belongs to partition {partition_of(group, partitions)} (murmur2)"
        )
    return event_type


def _event_type(event: Event, text: str) -> EventType:
    known = _TYPES[event.topic].get(text)
    if known is None:
        raise HeaderError(RejectReason.TYPE_UNKNOWN, f"type {text[:80]!r} isn't one of {event.topic}")
    return known


def _check_slot(event_type: EventType, headers: Headers) -> None:
    if event_type in STATUS_OF or event_type is EventType.ROLLOUT_ANNOTATED:
        check_slot(Slot.of(headers))
    if event_type is EventType.SEED_TAKEN:
        for field in (Headers.seed, Headers.worker):
            headers.require(field)
        headers.require(Headers.lease)
    if event_type is EventType.GROUP_CANCELLED:
        headers.require(Headers.group_size)


def check_slot(slot: Slot) -> None:
    """Ranges of member, group and attempt. Raises HeaderError."""
    if not 0 < slot.group_size <= MAX_GROUP or not 0 <= slot.member < slot.group_size:
        raise HeaderError(RejectReason.MEMBER_RANGE, f"member {slot.member} of a group of {slot.group_size}")
    if not 0 < slot.needed <= slot.group_size:
        raise HeaderError(RejectReason.GROUP_SIZE, f"{slot.needed} members needed of {slot.group_size}")
    if slot.attempt < 1:
        raise HeaderError(RejectReason.HEADER_MALFORMED, "attempts count from 1")


def is_claim(event: Event) -> bool:
    """True if the value is a claim on a body elsewhere."""
    return event.headers.raw.get("content-type") == CLAIM.encode()


def read_rollout(event: Event, body: bytes | None = None, body_type: str | None = None) -> Rollout:
    """A sound rollout of an event whose headers were read. Raises Rejected.

    For a claim, `body` and `body_type` are what it stands for; the caller fetched them.
    """
    raw = event.value if body is None else body
    if raw is None:
        raise Rejected(RejectReason.VALUE_NULL, "the value is null")
    headers = event.headers
    digest = digest_of(raw)
    try:
        slot = Slot.of(headers)
        check_digest(headers, digest)
        trajectory = value.decode(raw, body_type or headers.require(Headers.content_type))
        check_trajectory(trajectory)
        status = STATUS_OF[EventType(headers.require(Headers.type))]
        expected = derived(slot, status, trajectory, digest)
        if said := disagreement(headers, expected):
            raise Rejected(RejectReason.INCONSISTENT, said)
    except (HeaderError, value.BadValue) as error:
        raise Rejected(error.reason, str(error)) from error
    return Rollout(slot, trajectory, status)


def check_digest(headers: Headers, digest: str) -> None:
    """Compare the digest header, where there is one, with the value's. Raises Rejected(digest)."""
    said = headers.digest
    if said is not None and said != digest:
        raise Rejected(RejectReason.DIGEST, f"header says {said[:12]}..., the value is {digest[:12]}...")


def read_json(event: Event) -> dict[str, Any]:
    """The JSON object of a small event (annotation, take, cancellation, seed, final). Raises Rejected."""
    if event.value is None:
        raise Rejected(RejectReason.VALUE_NULL, "the value is null")
    try:
        check_digest(event.headers, digest_of(event.value))
        body: Any = orjson.loads(event.value)
    except orjson.JSONDecodeError as error:
        raise Rejected(RejectReason.NOT_JSON, f"not JSON: {error}") from error
    except HeaderError as error:
        raise Rejected(error.reason, str(error)) from error
    if not isinstance(body, dict):
        raise Rejected(RejectReason.SHAPE, "the value isn't a JSON object")
    return cast("dict[str, Any]", body)


def check_trajectory(trajectory: Trajectory) -> None:
    """Soundness of columns and record: a plain loop over nodes, and whole columns. Raises Rejected."""
    table = cast("list[list[int]]", trajectory.nodes.tolist())
    _check_lengths(trajectory, table)
    if not np.isfinite(trajectory.logprobs).all():
        raise Rejected(RejectReason.LOGPROBS, "a log-prob isn't finite")
    parents = [row[PARENT] for row in table]
    if (bad := graph.bad_parent(parents)) is not None:
        raise Rejected(RejectReason.PARENT, f"node {bad} has parent {parents[bad]}")
    _check_segments(trajectory, table)
    _check_record(trajectory, table)
    if trajectory.columns:
        _check_columns(trajectory)


def _check_lengths(trajectory: Trajectory, table: list[list[int]]) -> None:
    if any(min(row[TOKENS:]) < 0 for row in table):
        raise Rejected(RejectReason.LENGTHS, "a node has a negative count")
    ids, mask, tokens = len(trajectory.token_ids), trajectory.mask, sum(row[TOKENS] for row in table)
    if not ids == len(mask) == tokens:
        raise Rejected(
            RejectReason.LENGTHS, f"unequal lengths: {ids} token_ids, mask of {len(mask)}, nodes of {tokens} tokens"
        )
    if ids and int(mask.max()) > 1:
        raise Rejected(RejectReason.SHAPE, "mask holds something else than 0 and 1")
    trues, sampled = _trues(mask, table), [row[SAMPLED] for row in table]
    if trues != sampled or sum(trues) != len(trajectory.logprobs):
        raise Rejected(
            RejectReason.LENGTHS,
            f"{sum(trues)} trues of mask, {sum(sampled)} sampled tokens, {len(trajectory.logprobs)} log-probs",
        )


def _trues(mask: npt.NDArray[np.uint8], table: list[list[int]]) -> list[int]:
    """Trues of mask per node."""
    flags, at, found = mask.view(np.bool_), 0, list[int]()
    for row in table:
        end = at + row[TOKENS]
        found.append(int(np.count_nonzero(flags[at:end])))
        at = end
    return found


def _check_segments(trajectory: Trajectory, table: list[list[int]]) -> None:
    """None at all says that no policy is known; else they tile every node."""
    counted = sum(row[SEGMENTS] for row in table)
    if counted != len(trajectory.segments):
        raise Rejected(RejectReason.SEGMENTS, f"{len(trajectory.segments)} segments, but the nodes count {counted}")
    rows, at = cast("list[list[int]]", trajectory.segments.tolist()), 0
    for node, row in enumerate(table if rows else ()):
        end = at + row[SEGMENTS]
        if (said := bad_segments(rows[at:end], row[SAMPLED])) is not None:
            raise Rejected(RejectReason.SEGMENTS, f"node {node}: {said}")
        at = end


def _check_columns(trajectory: Trajectory) -> None:
    axes = {"token": len(trajectory.token_ids), "sampled": len(trajectory.logprobs)}
    for name, column in trajectory.columns.items():
        if column.alignment not in value.ALIGNMENTS:
            raise Rejected(RejectReason.SHAPE, f"column {name} has alignment {column.alignment!r}")
        if column.alignment in axes and len(column.array) != axes[column.alignment]:
            raise Rejected(RejectReason.LENGTHS, f"column {name} isn't parallel to the {column.alignment} axis")
    own = trajectory.columns.get("loss_mask")
    if own is not None and (own.alignment not in axes or own.array.ndim != 1):
        raise Rejected(RejectReason.SHAPE, "column loss_mask is one number per token or per sampled token")


def _check_record(trajectory: Trajectory, table: list[list[int]]) -> None:
    try:
        record: Any = trajectory.record
    except orjson.JSONDecodeError as error:
        raise Rejected(RejectReason.NOT_JSON, f"the record isn't JSON: {error}") from error
    facts = cast("dict[str, Any]", record) if isinstance(record, dict) else {}
    nodes: Any = facts.get("nodes")
    if not isinstance(nodes, list) or len(cast("list[Any]", nodes)) != len(table):
        raise Rejected(RejectReason.SHAPE, f"the record needs `nodes`, a list of {len(table)} objects")
    if (said := _bad_fact(facts)) is not None:
        raise Rejected(RejectReason.SHAPE, said)
    agents = len(facts.get("agents") or [None])
    if any(row[AGENT] >= agents for row in table):
        raise Rejected(RejectReason.SHAPE, f"a node names an agent beyond the table of {agents}")
    for i, (node, row) in enumerate(zip(cast("list[Any]", nodes), table, strict=True)):
        if (said := _bad_node(node, row[SAMPLED])) is not None:
            raise Rejected(RejectReason.SHAPE, f"node {i}: {said}")


def _bad_fact(record: dict[str, Any]) -> str | None:
    reward = record.get("reward")
    if reward is not None and (isinstance(reward, bool) or not isinstance(reward, (int, float))):
        return "`reward` is a number or null"
    for name, kind in (("agents", list), ("errors", list), ("info", dict), ("task", dict), ("stop_condition", str)):
        if record.get(name) is not None and not isinstance(record[name], kind):
            return f"`{name}` isn't a {kind.__name__}"
    if record.get("grain") not in (None, "token", "episode", "none"):
        return "`grain` is token, episode or none"
    return None


def _bad_node(node: Any, sampled: int) -> str | None:
    if not isinstance(node, dict):
        return "isn't an object"
    facts = cast("dict[str, Any]", node)
    if sampled and facts.get("sampled") is not True:
        return "has sampled tokens, but isn't `sampled`"
    message: Any = facts.get("message")
    if message is not None and not (isinstance(message, dict) and isinstance(cast("Any", message).get("role"), str)):
        return "`message` is null or an object with a `role`"
    return None
