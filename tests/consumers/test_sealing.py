"""What a seal counts and what the audit counts from there on is what it counts of everything (design/log#seals)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rolloutlog.consumers.audit.counts import Counts
from rolloutlog.consumers.audit.ledger import PartitionLedger
from rolloutlog.consumers.audit.sealing import FOUND_AGAIN, counts_of, resume, seal_of, violations_of
from rolloutlog.consumers.audit.violations import Violation
from rolloutlog.contract.events.audit_sealed import AuditSeal, audit_sealed, read_seals
from rolloutlog.contract.events.event import Event, Outgoing, cancelled_event
from rolloutlog.contract.events.group_events import GroupEvent, GroupFinal, MemberExpired
from rolloutlog.contract.events.run import read_fact
from rolloutlog.contract.events.watermarks import PartitionMarks, Watermarks
from rolloutlog.contract.topics import Topic
from rolloutlog.contract.vocabulary import DropReason, RunKind, Status, Verdict
from rolloutlog.contract.wire.headers import Headers
from tests.consumers.test_ledger import final, record

MARKS = Watermarks(timeline=0, step=1, partitions=(PartitionMarks(low=0, seeds=0, events=0),))
GROUPS = "gh"
records = st.builds(
    record,
    group=st.sampled_from(GROUPS),
    member=st.integers(0, 2),
    attempt=st.integers(1, 3),
    status=st.sampled_from(Status),
    kind=st.sampled_from([RunKind.TRAIN, RunKind.TRAIN, RunKind.TRAIN, RunKind.EVAL]),
)
cancels = st.builds(
    lambda group, member: cancelled_event(
        group=group, group_size=4, members=[member], reason="lost", source="/test", now=0
    ),
    st.sampled_from(GROUPS),
    st.integers(0, 2),
)
finals = st.builds(
    lambda members, as_of, reason, group: final(*members, as_of=as_of, reason=reason, group=group),
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 13)), max_size=3),
    st.integers(0, 14),
    st.sampled_from([None, DropReason.EXPIRED]),
    st.sampled_from(GROUPS),
)
expired = st.builds(
    MemberExpired,
    group=st.sampled_from(GROUPS),
    group_size=st.just(4),
    member=st.integers(0, 2),
    attempt=st.integers(1, 3),
    timeline=st.just(0),
    step=st.just(1),
    verdict=st.just(Verdict.EXPIRED),
)
Life = tuple[list[Outgoing], list[GroupEvent]]
"""What comes to `rollouts` and to `group-events` until somebody seals, or looks."""
lives = st.lists(
    st.tuples(st.lists(records | cancels, max_size=6), st.lists(finals | expired, max_size=2)), min_size=1, max_size=4
)


def folded(
    first: int, rollouts: Sequence[Outgoing], said: Sequence[GroupEvent], rejected: frozenset[int], seal: int = 0
) -> PartitionLedger:
    """A ledger before its end."""
    ledger = PartitionLedger(0, first, rejected, seal=seal)
    return fill(ledger, rollouts, said)


def fill(ledger: PartitionLedger, rollouts: Sequence[Outgoing], said: Sequence[GroupEvent]) -> PartitionLedger:
    for offset in range(ledger.first, len(rollouts)):
        out = rollouts[offset]
        ledger.fold(Event(Topic.ROLLOUTS, 0, offset, 0, out.key, Headers(out.headers), out.value))
    for each in said:
        ledger.end(each) if isinstance(each, GroupFinal) else ledger.expire(each)
    return ledger


def again(seal: AuditSeal) -> AuditSeal:
    """As it is read off the log."""
    out = audit_sealed(seal, source="/gc", now=0)
    name, body = read_fact(Event(Topic.RUN, 0, 0, 0, out.key, Headers(out.headers), out.value))
    (found, wrong) = read_seals({name: body}, 1)
    assert wrong == []
    return found[0]


def resumed(seal: AuditSeal | None, rejected: frozenset[int], at: int = 0) -> PartitionLedger:
    ledger = PartitionLedger(0, 0 if seal is None else seal.rollouts, rejected, seal=at)
    if seal is not None:
        resume(ledger, seal)
    return ledger


@given(lives, st.sets(st.integers(0, 24)), st.data())
def test_sealed_and_the_rest_is_all(lives: list[Life], rejections: set[int], data: st.DataObject) -> None:
    rejected, seal = frozenset(rejections), None
    rollouts, said = list[Outgoing](), list[GroupEvent]()
    blind: dict[str, int] = {}
    """What was sealed before a group's end: what a final event names below it, which is wrong, nobody can look at."""
    for number, (some, events) in enumerate(lives):
        rollouts, said = rollouts + some, said + events
        first = 0 if seal is None else seal.rollouts
        blind = {event.group: first for event in events if isinstance(event, GroupFinal)} | blind
        if number < len(lives) - 1:
            low = fill(resumed(seal, rejected), rollouts, said).low
            ledger = fill(resumed(seal, rejected, data.draw(st.integers(first, low))), rollouts, said)
            ledger.finish()
            seal = again(seal_of(ledger, seal, MARKS, 0, []))
    whole, rest = folded(0, rollouts, said, rejected), fill(resumed(seal, rejected), rollouts, said)
    whole.finish()
    rest.finish()
    counts, violations = Counts(), list(rest.violations)
    counts.add(rest.counts)
    if seal is not None:
        counts.add(counts_of(seal))
        violations += violations_of(seal)
    assert counts == whole.counts
    told = [
        found
        for found in whole.violations
        if found.kind in FOUND_AGAIN or found.offset is None or found.offset >= blind.get(found.group or "", 0)
    ]
    assert Counter(violations) == Counter(told)


def test_a_record_that_repeats_one_below_the_seal_is_still_a_duplicate() -> None:
    rollouts = [record(), record(1, group="h"), record(), record(1)]
    said: list[GroupEvent] = [final((0, 0), (1, 3), as_of=4)]
    ledger = folded(0, rollouts, said, frozenset(), seal=1)
    ledger.finish()
    seal = again(seal_of(ledger, None, MARKS, 0, []))
    assert [(group.group, len(group.records)) for group in seal.groups] == [("g", 1)]
    rest = fill(resumed(seal, frozenset()), rollouts, said)
    rest.finish()
    assert (rest.counts.terms, rest.counts.superseded) == ({"trained": 1, "pending": 1}, {"duplicate": 1})


def test_nothing_is_kept_of_a_group_that_lies_below_the_seal_as_a_whole() -> None:
    ledger = folded(0, [record(), record(), record(1)], [final((0, 0), as_of=2)], frozenset(), seal=2)
    ledger.finish()
    seal = again(seal_of(ledger, None, MARKS, 0, [Violation("seed-twice", "g", None, 0, 3)]))
    assert (seal.groups, seal.terms, seal.superseded) == ([], {"trained": 1}, {"duplicate": 1})
    assert violations_of(seal) == [Violation("seed-twice", "g", None, 0, 3)]


SOUND = AuditSeal(partition=0, partitions=1, rollouts=3, seeds=0, timeline=0, step=1, terms={"trained": 3})


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"terms": {"trained": -3}}, "greater than or equal to 0"),
        ({"terms": {"trained": "3"}}, "integer"),
        ({"terms": {"lost": 3}}, "'trained'"),
        ({"dropped": {"lost": 3}}, "no-token"),
        ({"rollouts": None}, "integer"),
        ({"partitions": 6}, "of partition 0 of 6"),
        ({"partition": 4}, "of partition 4 of 1"),
        ({"groups": [{"group": "g"}]}, "required"),
        ({"more": 1}, "more"),
    ],
)
def test_a_seal_that_cant_be_is_told_and_not_used(change: dict[str, object], why: str) -> None:
    body = orjson.loads(orjson.dumps(SOUND.model_dump(mode="json") | change))
    found, wrong = read_seals({"audit/0": body}, 1)
    assert found == {}
    assert len(wrong) == 1
    assert "audit/0" in wrong[0]
    assert why in wrong[0]
