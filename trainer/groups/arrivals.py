"""Values that are read together, as they are when a batch is drawn (design/trainer#columns).

Guarantees: each is what `arrived` says of it, or bad as that says, held by
`test_values_read_together_say_what_each_says`: columns of all are checked in one pass, and whatever isn't surely sound
there, or has another layout, is read by itself; what was decoded is kept. Leaves out: whether a policy was ever
published (`rolloutlog.trainer.stream.intake`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, cast

import numpy as np

from rolloutlog.buffer.group.member import Record
from rolloutlog.contract.events.body import Body
from rolloutlog.contract.events.event import Event
from rolloutlog.contract.ids import digest_of
from rolloutlog.contract.policies import Policy
from rolloutlog.contract.record import value
from rolloutlog.contract.record.graph import leaf_count
from rolloutlog.contract.record.rollout import Rollout
from rolloutlog.contract.record.sound_together import key_of, look_together
from rolloutlog.contract.record.soundness import check_record
from rolloutlog.contract.record.trajectory import Trajectory
from rolloutlog.contract.vocabulary import Grain, Status
from rolloutlog.contract.wire.headers import Headers
from rolloutlog.contract.wire.rejection import Rejected
from rolloutlog.trainer.groups.announced import Announced
from rolloutlog.trainer.groups.held_payload import Payload
from rolloutlog.trainer.groups.rollout_facts import Arrived, Bad, arrived
from rolloutlog.trainer.staleness.agents import claimed_policies
from rolloutlog.trainer.staleness.tokens_together import tokens_together
from rolloutlog.trainer.staleness.verdicts import MemberTokens

Arrival = Arrived | Bad
_ROLLOUT, _STATUS, _STOP = Headers.rollout.name, Headers.status.name, Headers.stop_condition.name
_GRAIN, _TURNS, _BRANCHES = Headers.grain.name, Headers.turns.name, Headers.branches.name
_COMPLETED = Status.COMPLETED.encode()
Announcement = tuple[Announced, Event]


def arrivals(records: Sequence[Announcement]) -> list[Arrival]:
    """What each of these records says, that was announced by its headers."""
    quick = _together(records)
    found = [quick.get(number) or _arrival(*record) for number, record in enumerate(records)]
    tokens = iter(tokens_together([one.rollout for one in found if isinstance(one, Arrived)]))
    return [_kept(one, next(tokens)) if isinstance(one, Arrived) else one for one in found]


def policies_of(found: Iterable[Arrival]) -> set[Policy]:
    """The policies that must have been published."""
    good = [one for one in found if isinstance(one, Arrived)]
    whole = [one.rollout.trajectory.segments for one in good if one.tokens is None or one.tokens.judged is None]
    named = set[Policy]()
    if whole:
        named = {Policy(*row) for row in np.unique(np.concatenate(whole)[:, :2], axis=0).tolist()}
    some = (one for one in good if one.tokens is not None and one.tokens.judged is not None)
    return named.union(*(claimed_policies(one.rollout.trajectory) for one in some))


def _together(records: Sequence[Announcement]) -> dict[int, Arrived]:
    """By number those that are surely what their headers say."""
    read = [(number, one) for number, (_, event) in enumerate(records) if (one := _decoded(event)) is not None]
    look = look_together([one for _, one in read])
    facts = [records[number][0] for number, _ in read]
    oldest = look.oldest == np.array([key_of(fact.oldest) for fact in facts], np.int64)
    newest = look.newest == np.array([key_of(fact.newest) for fact in facts], np.int64)
    sure = (look.sound & oldest & newest).tolist()
    return {
        number: made
        for (number, one), is_sure, is_line in zip(read, sure, look.line.tolist(), strict=True)
        if is_sure and (made := _surely(*records[number], one, is_line)) is not None
    }


def _decoded(event: Event) -> Trajectory | None:
    """None for another content type, and for what can't be decoded."""
    if event.value is None or event.headers.content_type != value.SAFETENSORS:
        return None
    try:
        return value.decode(event.value)
    except Rejected:
        return None


def _surely(fact: Announced, event: Event, one: Trajectory, is_line: bool) -> Arrived | None:
    """The fact of a record whose columns are sound and whose policies are those of its headers; None: look closer."""
    body = Body(cast("bytes", event.value), value.SAFETENSORS)
    if digest_of(body.value) != fact.record.digest or len(one.token_ids) != fact.tokens:
        return None
    try:
        check_record(one, one.nodes.tolist())
    except Rejected:
        return None
    if one.reward != fact.record.reward or not _agrees(fact, event.headers.raw, one, is_line):
        return None
    rollout, size = Rollout(fact.slot, one), one.response_tokens
    record = Record.at(
        event.handle, fact.slot.attempt, Status.COMPLETED, fact.record.digest, event.timestamp, one.reward, fact.oldest,
        sampled=size,
    )  # fmt: skip
    return Arrived(rollout, record, Payload(fact.slot, body, rollout))


def _agrees(fact: Announced, raw: dict[str, bytes], one: Trajectory, is_line: bool) -> bool:
    """True where each header says exactly what the value says, or nothing
    (`rolloutlog.contract.record.provenance`)."""
    record = one.record
    turns = sum(1 for node in cast("list[dict[str, Any]]", record["nodes"]) if node.get("sampled"))
    stop, rollout = record.get("stop_condition"), raw.get(_ROLLOUT)
    branches = 1 if is_line else leaf_count(one.parents)
    return (
        (rollout is None or rollout == fact.slot.rollout.encode())
        and raw.get(_STATUS, _COMPLETED) == _COMPLETED
        and _says(raw.get(_STOP), stop)
        and _says(raw.get(_GRAIN), record.get("grain", Grain.TOKEN))
        and _says(raw.get(_TURNS), turns)
        and _says(raw.get(_BRANCHES), branches)
    )


def _says(said: bytes | None, value: object) -> bool:
    """True where a header says that value, or nothing; no value can be said that is empty."""
    return said is None or (value is not None and said == str(value).encode() != b"")


def _arrival(fact: Announced, event: Event) -> Arrival:
    try:
        return arrived(event)
    except Rejected as rejected:
        return Bad(fact.slot, rejected)


def _kept(one: Arrived, tokens: MemberTokens) -> Arrived:
    payload = one.payload if one.payload.rollout else Payload(one.payload.slot, one.payload.body, one.rollout)
    return Arrived(one.rollout, one.record, payload, tokens)
