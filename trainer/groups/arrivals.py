"""Values that are read together, as they are when a batch is drawn (design/trainer#columns).

Guarantees: each is what `arrived` says of it, or bad as that says, held by
`test_values_read_together_say_what_each_says`: whatever isn't surely sound among the others
(`rolloutlog.contract.events.sound_values`) is read by itself; what was decoded is kept. Leaves out: whether a policy
was ever published (`rolloutlog.trainer.stream.intake`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import cast

import numpy as np

from rolloutlog.buffer.group.member import Record
from rolloutlog.contract.events.body import Body
from rolloutlog.contract.events.event import Event
from rolloutlog.contract.events.sound_values import sound_values
from rolloutlog.contract.policies import Policy
from rolloutlog.contract.record import value
from rolloutlog.contract.record.rollout import Rollout
from rolloutlog.contract.record.trajectory import Trajectory
from rolloutlog.contract.vocabulary import Status
from rolloutlog.contract.wire.rejection import Rejected
from rolloutlog.trainer.groups.announced import Announced
from rolloutlog.trainer.groups.held_payload import Payload
from rolloutlog.trainer.groups.rollout_facts import Arrived, Bad, arrived
from rolloutlog.trainer.staleness.agents import claimed_policies
from rolloutlog.trainer.staleness.tokens_together import tokens_together
from rolloutlog.trainer.staleness.verdicts import MemberTokens

Arrival = Arrived | Bad
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
    found = sound_values([event for _, event in records])
    return {number: _surely(*records[number], one) for number, one in enumerate(found) if one is not None}


def _surely(fact: Announced, event: Event, one: Trajectory) -> Arrived:
    """The fact of a record whose value is what its headers say."""
    body = Body(cast("bytes", event.value), value.SAFETENSORS)
    rollout, size = Rollout(fact.slot, one), one.response_tokens
    record = Record.at(
        event.handle, fact.slot.attempt, Status.COMPLETED, fact.record.digest, event.timestamp, one.reward, fact.oldest,
        sampled=size,
    )  # fmt: skip
    return Arrived(rollout, record, Payload(fact.slot, body, rollout))


def _arrival(fact: Announced, event: Event) -> Arrival:
    try:
        return arrived(event)
    except Rejected as rejected:
        return Bad(fact.slot, rejected)


def _kept(one: Arrived, tokens: MemberTokens) -> Arrived:
    payload = one.payload if one.payload.rollout else Payload(one.payload.slot, one.payload.body, one.rollout)
    return Arrived(one.rollout, one.record, payload, tokens)
