"""The one table of bad inputs: what is written, what each reader must make of it, and what a producer says before.

Guarantees: every row is a log of one group of two, in order: member 0 is sound and first, and must never be lost; the
other records speak of member 1. The table drives the tests of checks, buffer and trainer, pure and on a broker, so that
the two services can't disagree. Leaves out: how a service is run.

    for row in BAD_INPUTS:
        for record in row.records(store):     # Written: a Raw, and the reason of its dead letter or None
            ...
        # then: member 1 of row.group is `row.ends_for(reader)`; the group is resolved if that isn't "open"
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
import orjson

from rolloutlog.contract.errors import InvalidRecord, RecordTooLarge, RolloutlogError
from rolloutlog.contract.events.event import rollout_event
from rolloutlog.contract.ids import digest_of, id_of
from rolloutlog.contract.record import value
from rolloutlog.contract.record.plain_json import encode_json
from rolloutlog.contract.record.rollout import Rollout
from rolloutlog.contract.record.trajectory import Column, Trajectory
from rolloutlog.contract.vocabulary import RejectReason
from rolloutlog.contract.wire.claims import CLAIM, Claim
from tests.cases.raw import NOW, SOURCE, Raw
from tests.cases.rollouts import altered, sound

Reason = RejectReason
SlotEnd = Literal["open", "failed", "completed"]
FoundIn = Literal["headers", "value", "claim", "group", "policies", "nothing"]
"""What must be known to reject: the record's headers, its value, the blob that it claims, the group's earlier records,
`policy-versions` (the trainer alone), or nothing, since the row holds no rejected record."""

STORE = "file:///nowhere"
OTHER_SEED = "07e2" * 8
BAD_MEMBER = 1


@dataclass(frozen=True, slots=True)
class Written:
    """One record on the log, and the reason of its dead letter; None: it is taken or quietly ignored."""

    raw: Raw
    reason: Reason | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BadInput:
    """One row. `build(group, store)` makes the records after the sound member 0; `store` is the URL of the blob store.

    `ends` is what member 1 is afterwards, and `attempt` the attempt that stands where it completed. `refused` is what a
    producer that is asked to publish `rollout` raises, with `refused_for` its reason, before anything is written.
    `blobs` are to be put below the store, by name.
    """

    name: str
    found_in: FoundIn
    ends: SlotEnd
    build: Callable[[str, str], Sequence[Written]] = field(repr=False)
    attempt: int = 1
    rollout: Rollout | None = field(default=None, repr=False)
    refused: type[RolloutlogError] | None = None
    refused_for: Reason | None = None
    blobs: Mapping[str, bytes] = field(default_factory=dict[str, bytes], repr=False)

    def ends_for(self, reader: Literal["buffer", "trainer"]) -> SlotEnd:
        """What member 1 is for that reader: the buffer takes what only `policy-versions` could disprove."""
        return "completed" if self.found_in == "policies" and reader == "buffer" else self.ends

    @property
    def group(self) -> str:
        """Group id of the row, its own."""
        return group_of(self.name)

    def records(self, store: str = STORE) -> list[Written]:
        """The log of this row: the sound member 0, then what the row is about."""
        if self.name == "empty-topic":
            return []
        return [Written(Raw.of(sound(self.group, 0))), *self.build(self.group, store)]


def group_of(name: str) -> str:
    """Group id of the row of that name."""
    return id_of("bad-input", name)


def _good(group: str, **slot: Any) -> Raw:
    return Raw.of(sound(group, BAD_MEMBER, **slot))


def _header(name: str, reason: Reason, **headers: bytes | None) -> BadInput:
    """A record that is sound but for headers: says nothing sure of a slot, so it stays open."""

    def build(group: str, store: str) -> list[Written]:
        return [Written(_good(group).but(headers), reason)]

    return BadInput(name=name, found_in="headers", ends="open", build=build)


def _body(name: str, reason: Reason, make: Callable[[Raw], Raw]) -> BadInput:
    """A record whose value is bad: its slot ends as failed(rejected)."""

    def build(group: str, store: str) -> list[Written]:
        return [Written(make(_good(group)), reason)]

    return BadInput(name=name, found_in="value", ends="failed", build=build)


def _digested(raw: Raw, body: bytes) -> Raw:
    """Another value under the same headers, but for its digest."""
    return replace(raw.but({"digest": digest_of(body).encode()}), value=body)


def _columns(name: str, reason: Reason, **columns: Any) -> BadInput:
    """A record with other columns, which a producer would refuse to write."""
    rollout = sound(group_of(name), BAD_MEMBER)
    rollout.trajectory = altered(rollout.trajectory, **columns)
    row = _body(name, reason, lambda raw: raw.holding(value.encode(rollout.trajectory)))
    return replace(row, rollout=rollout, refused=InvalidRecord, refused_for=reason)


def _says(name: str, reason: Reason, record: bytes) -> BadInput:
    """A record whose text says something that can't be kept, as another language may write it."""
    rollout = sound(group_of(name), BAD_MEMBER)
    columns = {
        name: getattr(rollout.trajectory, name) for name in ("token_ids", "logprobs", "mask", "segments", "nodes")
    }
    rollout.trajectory = Trajectory(record_text=record[:-1] + b', "nodes": [{}, {"sampled": true}]}', **columns)
    row = _body(name, reason, lambda raw: raw.holding(value.encode(rollout.trajectory)).but({"reward": None}))
    return replace(row, rollout=rollout, refused=InvalidRecord, refused_for=reason)


def _slot(name: str, reason: Reason, **slot: Any) -> BadInput:
    """A record whose slot can't be; a producer refuses to write it."""
    rollout = sound(group_of(name), **{"member": BAD_MEMBER, **slot})

    def build(group: str, store: str) -> list[Written]:
        return [Written(Raw.of(rollout), reason)]

    return BadInput(
        name=name,
        found_in="headers",
        ends="open",
        build=build,
        rollout=rollout,
        refused=InvalidRecord,
        refused_for=reason,
    )


def _group(name: str, ends: SlotEnd, build: Callable[[str], Sequence[Written]], attempt: int = 1) -> BadInput:
    """Records that are sound alone, but not together."""
    return BadInput(name=name, found_in="group", ends=ends, attempt=attempt, build=lambda group, store: build(group))


def _claim(name: str, reason: Reason, body: bytes, blobs: Mapping[str, bytes]) -> BadInput:
    """A record that claims a body in the blob store."""
    digest = digest_of(body)

    def build(group: str, store: str) -> list[Written]:
        claim = Claim(url=f"{store}/{digest}", size=len(body), digest=digest, content_type=value.SAFETENSORS)
        record = _good(group).holding(claim.encode(), CLAIM).but({"digest": digest.encode()})
        return [Written(record, reason)]

    return BadInput(name=name, found_in="claim", ends="failed", build=build, blobs=blobs)


def oversize(limit: int, group: str = group_of("above-the-limit")) -> Rollout:
    """A sound rollout whose record is one byte above `limit` bytes with its headers; it can't be compressed."""

    def padded(size: int) -> Rollout:
        rollout = sound(group, BAD_MEMBER)
        noise = np.random.default_rng(0).integers(0, 256, size, np.uint8)
        rollout.trajectory.columns["noise"] = Column(noise, "opaque")
        return rollout

    start = limit // 2
    spare = limit + 1 - rollout_event(padded(start), source=SOURCE, now=NOW).size
    return padded(start + spare)


def _json(**changes: Any) -> bytes:
    return orjson.dumps(orjson.loads(encode_json(_TRAJECTORY)) | changes)


def _json_text(fact: str) -> bytes:
    return encode_json(_TRAJECTORY).replace(b'{"record":{', b'{"record":{' + fact.encode() + b",")


_TRAJECTORY: Trajectory = sound("any").trajectory
_SEGMENT_CASES = {
    "segments-gap": [(0, 0, 1), (0, 1, 2)],
    "segments-overlap": [(0, 0, 0), (0, 1, 0)],
    "segments-beyond-the-end": [(0, 0, 0), (0, 1, 4)],
    "segments-same-neighbours": [(0, 1, 0), (0, 1, 2)],
    "segments-negative-policy": [(0, -1, 0), (0, 1, 2)],
}

_READ_HEADERS = (
    "spec_version", "id", "type", "source", "content_type", "schema_version", "group", "group_size", "group_train",
    "member", "attempt", "kind", "run", "env", "origin_seed", "origin_offset", "seed_kind", "source_handle", "depth",
)  # fmt: skip
"""Headers without which nobody knows what a record is."""

BAD_INPUTS: tuple[BadInput, ...] = (
    _header("header-missing-id", Reason.HEADER_MISSING, id=None),
    _header("header-missing-type", Reason.HEADER_MISSING, type=None),
    _header("header-missing-source", Reason.HEADER_MISSING, source=None),
    _header("header-missing-content-type", Reason.HEADER_MISSING, content_type=None),
    _header("header-missing-schema", Reason.HEADER_MISSING, schema_version=None),
    _header("header-missing-group", Reason.HEADER_MISSING, group=None),
    _header("header-missing-group-size", Reason.HEADER_MISSING, group_size=None),
    _header("header-missing-member", Reason.HEADER_MISSING, member=None),
    _header("header-unknown", Reason.HEADER_UNKNOWN, ce_rewrad=b"1.0"),
    *(_header(f"header-not-utf8-{name}", Reason.HEADER_MALFORMED, **{name: b"\xff\xfe"}) for name in _READ_HEADERS),
    _header("header-not-a-number", Reason.HEADER_MALFORMED, member=b"one"),
    _header("step-not-a-number", Reason.HEADER_MALFORMED, step=b"one"),
    _header("header-number-huge", Reason.HEADER_MALFORMED, tokens=b"9" * 40),
    _header("reward-header-nan", Reason.HEADER_MALFORMED, reward=b"nan"),
    _header("header-other-cloudevents", Reason.HEADER_MALFORMED, spec_version=b"0.3"),
    _header("id-of-another-record", Reason.HEADER_MALFORMED, id=b"rollout-17"),
    _header("schema-newer", Reason.SCHEMA_NEWER, schema_version=b"999"),
    _header("type-unknown", Reason.TYPE_UNKNOWN, type=b"rollout.imagined"),
    _header("type-of-another-topic", Reason.TYPE_UNKNOWN, type=b"group.trained"),
    _header("content-type-unknown", Reason.CONTENT_TYPE, content_type=b"application/x-python-pickle"),
    _header("key-not-the-group", Reason.KEY, group=group_of("another").encode()),
    BadInput(
        name="wrong-partition", found_in="headers", ends="open",
        build=lambda group, store: [Written(replace(_good(group), misplaced=True), Reason.PARTITION)],
    ),
    _slot("member-outside-the-group", Reason.MEMBER_RANGE, member=2),
    _slot("group-of-none", Reason.MEMBER_RANGE, group_size=0),
    _slot("group-of-too-many", Reason.MEMBER_RANGE, group_size=4097),
    _slot("needs-more-than-it-has", Reason.GROUP_SIZE, group_train=3),
    _slot("attempt-zero", Reason.HEADER_MALFORMED, attempt=0),
    _slot("attempt-without-a-next", Reason.HEADER_MALFORMED, attempt=2**62),
    _body("null-value", Reason.VALUE_NULL, lambda raw: replace(raw, value=None)),
    _body("not-json", Reason.NOT_JSON, lambda raw: raw.holding(b"{ truly not", value.JSON)),
    _body("not-utf8-json", Reason.NOT_JSON, lambda raw: raw.holding(b'{"record": "\xff"}', value.JSON)),
    _body("json-of-another-shape", Reason.SHAPE, lambda raw: raw.holding(b'{"messages": []}', value.JSON)),
    _body("json-not-an-object", Reason.SHAPE, lambda raw: raw.holding(b"[1, 2]", value.JSON)),
    _body("json-number-too-large", Reason.SHAPE, lambda raw: raw.holding(_json(token_ids=[2**40] * 7), value.JSON)),
    _body("empty-value", Reason.TRUNCATED, lambda raw: raw.holding(b"")),
    _body("truncated-safetensors", Reason.TRUNCATED, lambda raw: raw.holding((raw.value or b"")[:-9])),
    _body("digest-mismatch", Reason.DIGEST, lambda raw: replace(raw, value=(raw.value or b"")[:-1] + b"?")),
    _body("reward-header-disagrees", Reason.INCONSISTENT, lambda raw: raw.but({"reward": b"0.25"})),
    _body("oldest-policy-header-disagrees", Reason.INCONSISTENT, lambda raw: raw.but({"oldest_policy": b"0:1"})),
    _body("newest-policy-header-disagrees", Reason.INCONSISTENT, lambda raw: raw.but({"newest_policy": b"0:0"})),
    _body("tokens-header-disagrees", Reason.INCONSISTENT, lambda raw: raw.but({"tokens": b"1000000"})),
    _body("truncated-behind-good-headers", Reason.TRUNCATED, lambda raw: _digested(raw, (raw.value or b"")[:-9])),
    _columns("fewer-logprobs-than-ids", Reason.LENGTHS, logprobs=_TRAJECTORY.logprobs[:-1]),
    _columns("fewer-ids-than-mask", Reason.LENGTHS, token_ids=_TRAJECTORY.token_ids[:-1]),
    _columns("nodes-count-more-tokens", Reason.LENGTHS, nodes=[(-1, 3, 0, 0, 0), (0, 9, 4, 2, 0)]),
    _columns("logprobs-nan", Reason.LOGPROBS, logprobs=[-0.5, np.nan, -0.5, -0.5]),
    _columns("logprobs-infinite", Reason.LOGPROBS, logprobs=[-0.5, -np.inf, -0.5, -0.5]),
    _columns("logprob-above-0", Reason.LOGPROBS, logprobs=[-0.5, 0.7, -0.5, -0.5]),
    _columns("token-id-below-0", Reason.TOKEN_IDS, token_ids=[0, 1, 2, 100, -100, 102, 103]),
    _columns("token-id-below-0-in-the-prompt", Reason.TOKEN_IDS, token_ids=[-1, 1, 2, 100, 101, 102, 103]),
    _body("json-token-id-true", Reason.SHAPE, lambda raw: raw.holding(_json(token_ids=[True] * 7), value.JSON)),
    _body("json-token-id-a-text", Reason.SHAPE, lambda raw: raw.holding(_json(token_ids=["1"] * 7), value.JSON)),
    _body("json-logprob-true", Reason.SHAPE, lambda raw: raw.holding(_json(logprobs=[False] * 4), value.JSON)),
    _body("json-nan", Reason.NOT_JSON, lambda raw: raw.holding(_json_text('"x": NaN'), value.JSON)),
    _body("json-beyond-64-bits", Reason.SHAPE, lambda raw: raw.holding(_json_text(f'"x": {2**128 - 1}'), value.JSON)),
    _says("record-beyond-64-bits", Reason.SHAPE, b'{"info": {"seed": [-9223372036854775809]}}'),
    _says("record-nan", Reason.NOT_JSON, b'{"metrics": {"loss": NaN}}'),
    _says("record-infinite", Reason.NOT_JSON, b'{"metrics": {"loss": 1e999}}'),
    _says("reward-nan", Reason.NOT_JSON, b'{"reward": NaN}'),
    _says("reward-beyond-float32", Reason.SHAPE, b'{"reward": 1e39}'),
    _says("reward-of-an-agent-beyond-float32", Reason.SHAPE, b'{"agents": [{"reward": -1e39}]}'),
    *(_columns(name, Reason.SEGMENTS, segments=segments) for name, segments in _SEGMENT_CASES.items()),
    _columns("parent-forward", Reason.PARENT, nodes=[(1, 3, 0, 0, 0), (-1, 4, 4, 2, 0)]),
    _columns("parent-itself", Reason.PARENT, nodes=[(-1, 3, 0, 0, 0), (1, 4, 4, 2, 0)]),
    _columns("mask-of-twos", Reason.SHAPE, mask=[0, 0, 0, 1, 1, 1, 2]),
    _claim("claim-gone", Reason.CLAIM_MISSING, value.encode(_TRAJECTORY), {}),
    _claim(
        "claim-changed", Reason.CLAIM_CHANGED, value.encode(_TRAJECTORY),
        {digest_of(value.encode(_TRAJECTORY)): value.encode(_TRAJECTORY)[:-1] + b"?"},
    ),
    BadInput(
        name="claim-malformed", found_in="claim", ends="failed",
        build=lambda group, store: [Written(_good(group).holding(b'{"url": 1}', CLAIM), Reason.SHAPE)],
    ),
    _group(
        "two-origin-seeds", "open",
        lambda group: [Written(_good(group, origin_seed=OTHER_SEED), Reason.ORIGIN)],
    ),
    _group(
        "two-group-sizes", "open",
        lambda group: [Written(_good(group, group_size=3), Reason.GROUP_SIZE)],
    ),
    _group("same-attempt-equal", "completed", lambda group: [Written(_good(group)), Written(_good(group))]),
    _group(
        "same-attempt-different", "completed",
        lambda group: [
            Written(_good(group)),
            Written(Raw.of(sound(group, BAD_MEMBER, reward=0.0)), Reason.CONFLICT),
        ],
    ),
    _group(
        "lower-attempt-late", "completed", attempt=2,
        build=lambda group: [Written(_good(group, attempt=2)), Written(_good(group, attempt=1))],
    ),
    _group(
        "rejected-then-good", "completed",
        lambda group: [Written(replace(_good(group), value=None), Reason.VALUE_NULL), Written(_good(group))],
    ),
    _group(
        "good-then-rejected", "completed",
        lambda group: [Written(_good(group)), Written(replace(_good(group), value=None), Reason.VALUE_NULL)],
    ),
    BadInput(
        name="policy-never-published", found_in="policies", ends="failed",
        build=lambda group, store: [
            Written(
                Raw.of(
                    replace(
                        sound(group, BAD_MEMBER),
                        trajectory=altered(_TRAJECTORY, segments=[(0, 0, 0), (3, 77, 2)]),
                    )
                ),
                Reason.POLICY_UNKNOWN,
            )
        ],
    ),
    BadInput(
        name="above-the-limit", found_in="nothing", ends="open", build=lambda group, store: [], refused=RecordTooLarge
    ),
    BadInput(name="empty-topic", found_in="nothing", ends="open", build=lambda group, store: []),
)  # fmt: skip

BY_NAME: Mapping[str, BadInput] = {row.name: row for row in BAD_INPUTS}
