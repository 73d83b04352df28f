"""Values that are read together, as they are when a batch is drawn (design/trainer#columns).

Guarantees: each is what `arrived` says of it, or bad as that says; what the rule needs is made of all of them at once,
and what was decoded is kept. Leaves out: whether a policy was ever published (`rolloutlog.trainer.stream.intake`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from rolloutlog.contract.events.event import Event
from rolloutlog.contract.policies import Policy
from rolloutlog.contract.record.slot import Slot
from rolloutlog.contract.wire.rejection import Rejected
from rolloutlog.trainer.groups.rollout_facts import Arrived, Bad, arrived
from rolloutlog.trainer.staleness.agents import claimed_policies
from rolloutlog.trainer.staleness.tokens_together import tokens_together
from rolloutlog.trainer.staleness.verdicts import MemberTokens

Arrival = Arrived | Bad


def arrivals(records: Iterable[tuple[Slot, Event]]) -> list[Arrival]:
    """What each of these records says, whose headers say that slot."""
    found = [_arrival(slot, event) for slot, event in records]
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


def _arrival(slot: Slot, event: Event) -> Arrival:
    try:
        return arrived(event)
    except Rejected as rejected:
        return Bad(slot, rejected)


def _kept(one: Arrived, tokens: MemberTokens) -> Arrived:
    return replace(one, tokens=tokens, payload=replace(one.payload, rollout=one.rollout))
