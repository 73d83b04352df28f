"""The accounting identity: every record counts once, under the first term that fits (design/groups#accounting)."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from rolloutlog.consumers.audit.indexed_offsets import IndexedOffsets
from rolloutlog.consumers.audit.ledger import PartitionLedger
from rolloutlog.consumers.audit.offset_set import OffsetSet
from rolloutlog.consumers.audit.seed_ids import PlacedSeed, SeedHashes, is_among, repeated_seeds
from rolloutlog.consumers.audit.violations import Violation
from rolloutlog.contract.events.event import Event, Outgoing, cancelled_event, rollout_event
from rolloutlog.contract.events.group_events import GroupFinal, MemberExpired, MemberOutcome
from rolloutlog.contract.record.rollout import Rollout
from rolloutlog.contract.topics import Topic
from rolloutlog.contract.vocabulary import DropReason, RunKind, Status, Verdict
from rolloutlog.contract.wire.headers import Headers


def record(
    member: int = 0, attempt: int = 1, status: Status = Status.COMPLETED, group: str = "g", **slot: object
) -> Outgoing:
    made = Rollout.flat(
        prompt_ids=[1],
        response_ids=[2, member],
        logprobs=[-0.1, -0.2],
        versions=0,
        reward=1.0,
        group=group,
        member=member,
        group_size=4,
        attempt=attempt,
        slot=slot,
    )
    return rollout_event(replace(made, status=status), source="/test", now=0)


def ledger(
    *records: Outgoing,
    finals: list[GroupFinal] | None = None,
    expired: list[MemberExpired] | None = None,
    rejected: set[int] | None = None,
    indexed: set[int] | None = None,
    folded: int | None = None,
    said_at: int | None = None,
) -> PartitionLedger:
    """A ledger of records, and of what is said of groups: once so many records were folded, or after all of them."""
    index = IndexedOffsets(rows=OffsetSet(indexed or ()), folded=folded)
    made = PartitionLedger(0, rejected=frozenset(rejected or ()), index=index)
    for offset, out in enumerate(records):
        if offset == said_at:
            tell(made, finals, expired)
        event = Event(Topic.ROLLOUTS, 0, offset, 0, out.key, Headers(out.headers), out.value)
        made.fold(event)
    if said_at is None or said_at >= len(records):
        tell(made, finals, expired)
    made.finish()
    return made


def tell(made: PartitionLedger, finals: list[GroupFinal] | None, expired: list[MemberExpired] | None) -> None:
    for gone in expired or []:
        made.expire(gone)
    for one in finals or []:
        made.end(one)


def final(
    *members: tuple[int, int],
    as_of: int = 99,
    reason: DropReason | None = None,
    group: str = "g",
    pass_number: int = 1,
    verdict: Verdict = Verdict.FRESH,
) -> GroupFinal:
    """A final event naming `(member, offset)` pairs."""
    outcomes = [
        MemberOutcome(member=m, attempt=1, status="completed", handle=f"0/{offset}/9", verdict=verdict)
        for m, offset in members
    ]
    return GroupFinal(
        group=group,
        group_size=4,
        timeline=0,
        step=1,
        as_of=as_of,
        reason=reason,
        members=outcomes,
        pass_number=pass_number,
    )


def terms(made: PartitionLedger) -> dict[str, object]:
    counts = made.counts
    assert counts.accounted == counts.produced
    flat = {**counts.terms, **{f"superseded.{k}": v for k, v in counts.superseded.items()}}
    return {**flat, **{f"dropped.{k}": v for k, v in counts.dropped.items()}}


def test_each_term() -> None:
    assert terms(ledger(record())) == {"pending": 1}
    assert terms(ledger(record(), rejected={0})) == {"rejected": 1}
    assert terms(ledger(record(kind=RunKind.EVAL))) == {"eval": 1}
    assert terms(ledger(record(), record())) == {"pending": 1, "superseded.duplicate": 1}
    assert terms(ledger(record(), finals=[final((0, 0))])) == {"trained": 1}
    assert terms(ledger(record(), finals=[final((0, 0), verdict=Verdict.BASELINE)])) == {"baseline": 1}
    assert terms(ledger(record(), record(attempt=2))) == {"superseded.attempt": 1, "pending": 1}
    assert terms(ledger(record(status=Status.FAILED))) == {"failed": 1}
    assert terms(ledger(record(), finals=[final((0, 0), reason=DropReason.EXPIRED)])) == {"dropped.expired": 1}
    assert terms(ledger(record(), record(1), finals=[final((0, 0))])) == {"trained": 1, "superseded.surplus": 1}


def test_an_aborted_member_that_is_cancelled_counts_as_cancelled() -> None:
    gone = cancelled_event(group="g", group_size=4, members=[1], reason="attempts", source="/test", now=0)
    assert terms(ledger(record(1, status=Status.ABORTED), gone)) == {"cancelled": 1}
    assert terms(ledger(gone, record(1, status=Status.ABORTED))) == {"pending": 1}, "9.1: aborted, then cancelled"
    assert terms(ledger(record(1, status=Status.ABORTED), gone, rejected={1})) == {"rejected": 1, "pending": 1}
    unreadable = structs.replace(gone, headers=[(k, b"\xff" if k == "ce_group" else v) for k, v in gone.headers])
    assert terms(ledger(record(1, status=Status.ABORTED), unreadable)) == {"pending": 1}


def test_a_record_at_or_above_as_of_is_late() -> None:
    assert terms(ledger(record(), record(1), finals=[final((0, 0), as_of=1)])) == {"trained": 1, "superseded.late": 1}


def test_a_higher_attempt_counts_only_below_as_of() -> None:
    trained = ledger(record(), record(attempt=2), finals=[final((0, 0), as_of=1)])
    assert terms(trained) == {"trained": 1, "superseded.late": 1}


def test_an_expired_attempt_is_called_so_until_a_higher_one_lies_before_the_draw() -> None:
    gone = MemberExpired(group="g", group_size=4, member=0, attempt=1, timeline=0, step=3, verdict=Verdict.EXPIRED)
    assert terms(ledger(record(), expired=[gone])) == {"expired": 1}
    assert terms(ledger(record(), record(attempt=2), expired=[gone])) == {"superseded.attempt": 1, "pending": 1}
    dropped = final(as_of=1, reason=DropReason.EXPIRED)
    assert terms(ledger(record(), record(attempt=2), expired=[gone], finals=[dropped])) == {
        "expired": 1,
        "superseded.late": 1,
    }


def test_what_a_trained_group_leaves_out_as_stale_is_expired() -> None:
    whole = final((0, 0))
    whole.members.append(
        MemberOutcome(member=1, attempt=1, status="completed", handle="0/1/9", verdict=Verdict.EXPIRED)
    )
    assert terms(ledger(record(), record(1), finals=[whole])) == {"trained": 1, "expired": 1}


def test_late_comes_before_duplicate() -> None:
    assert terms(ledger(record(), record(), finals=[final((0, 0), as_of=1)])) == {"trained": 1, "superseded.late": 1}
    failed = record(1, status=Status.FAILED)
    assert terms(ledger(record(), failed, finals=[final((0, 0), as_of=1)])) == {"trained": 1, "superseded.late": 1}


def test_a_duplicate_is_known_by_type_and_digest_also_where_no_header_says_the_digest() -> None:
    bare = structs.replace(record(), headers=[(k, v) for k, v in record().headers if k != "ce_digest"])
    failed = record(status=Status.FAILED)
    for first, second in ((bare, record()), (record(), bare), (bare, bare)):
        assert terms(ledger(first, second)) == {"pending": 1, "superseded.duplicate": 1}
    assert terms(ledger(bare, structs.replace(bare, value=bare.value + b" "))) == {"pending": 2}
    assert terms(ledger(record(), failed)) == {"pending": 1, "failed": 1}


def test_a_final_event_that_names_another_partition_counts_nothing_here() -> None:
    """Nor is it named twice, though the record here has the same offset."""
    foreign = MemberOutcome(member=1, attempt=1, status="completed", handle="3/0/9")
    for here, trained in ((final(), 0), (final((0, 0)), 1)):
        here.members.append(foreign)
        made = ledger(record(), finals=[here])
        assert made.counts.terms["trained"] == trained
        assert [violation.kind for violation in made.violations] == ["handle-of-another-partition"]


def test_a_repeated_id_with_another_value_isnt_a_duplicate() -> None:
    other = structs.replace(record(), headers=[(k, b"0" * 64 if k == "ce_digest" else v) for k, v in record().headers])
    assert terms(ledger(record(), other, rejected={1})) == {"pending": 1, "rejected": 1}


@pytest.mark.parametrize(
    ("made", "kind"),
    [
        (ledger(record(), finals=[final((0, 7))]), "handle-missing"),
        (ledger(record(), finals=[final((0, 0))], rejected={0}), "handle-rejected"),
        (ledger(record(group="other"), finals=[final((0, 0))]), "handle-of-another-group"),
        (ledger(record(), finals=[final((0, 0), (0, 0))]), "named-twice"),
        (ledger(record(), finals=[final((0, 0)), final()]), "two-finals"),
        (ledger(record(), folded=1), "no-row"),
    ],
)
def test_violations(made: PartitionLedger, kind: str) -> None:
    assert [violation.kind for violation in made.violations] == [kind]


def test_a_row_or_a_dead_letter_answers_for_a_folded_record() -> None:
    assert ledger(record(), indexed={0}, folded=1).violations == []
    assert ledger(record(), rejected={0}, folded=1).violations == []
    assert ledger(record(), folded=0).violations == []


def test_a_group_may_be_trained_again_in_another_pass() -> None:
    assert ledger(record(), finals=[final((0, 0)), final((0, 0), pass_number=2)]).violations == []


def test_a_handle_below_the_first_offset_was_deleted_with_its_counts() -> None:
    made = PartitionLedger(0, first=5)
    tell(made, [final((0, 2))], None)
    made.finish()
    assert made.violations == []


def test_repeated_seeds() -> None:
    once, other, again = PlacedSeed("a", "g", 0, 1), PlacedSeed("b", "h", 0, 2), PlacedSeed("a", "g", 0, 9)
    assert repeated_seeds([once, other]) == []
    assert repeated_seeds([once, again]) == [Violation("seed-twice", "g", None, 0, 9)]
    hashes = SeedHashes()
    for seed in (once, other, again):
        hashes.add(seed.id)
    suspected = hashes.repeated()
    assert [is_among(seed.id, suspected) for seed in (once, other, again)] == [True, False, True]


records = st.builds(
    record,
    member=st.integers(0, 3),
    attempt=st.integers(1, 3),
    status=st.sampled_from(Status),
    kind=st.sampled_from(RunKind),
)


@given(st.lists(records, max_size=12), st.sets(st.integers(0, 11)), st.integers(0, 12))
def test_every_record_counts_exactly_once(made: list[Outgoing], rejected: set[int], as_of: int) -> None:
    counts = ledger(*made, rejected=rejected, finals=[final((0, 0), as_of=as_of)]).counts
    assert counts.accounted == counts.produced == len(made)


anything = records | st.builds(record, group=st.just("h"), member=st.integers(0, 3), status=st.sampled_from(Status))
anything |= st.lists(st.integers(0, 3), min_size=1, max_size=2).map(
    lambda members: cancelled_event(group="g", group_size=4, members=members, reason="lost", source="/test", now=0)
)
outcomes = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 13)), max_size=4)
ends = st.builds(
    lambda members, as_of, reason, group: final(*members, as_of=as_of, reason=reason, group=group),
    outcomes,
    st.integers(0, 14),
    st.sampled_from([None, DropReason.EXPIRED]),
    st.sampled_from("gh"),
)
gone = st.builds(
    MemberExpired,
    group=st.sampled_from("gh"),
    group_size=st.just(4),
    member=st.integers(0, 3),
    attempt=st.integers(1, 3),
    timeline=st.just(0),
    step=st.just(1),
    verdict=st.just(Verdict.EXPIRED),
)


rejections = st.sets(st.integers(0, 11))


@given(st.lists(anything, max_size=12), rejections, st.lists(ends, max_size=4), st.lists(gone), st.integers(0, 12))
def test_it_doesnt_matter_how_the_topics_are_read_side_by_side(
    made: list[Outgoing], rejected: set[int], finals: list[GroupFinal], expired: list[MemberExpired], said_at: int
) -> None:
    said = [ledger(*made, rejected=rejected, finals=finals, expired=expired, said_at=at) for at in (0, said_at, None)]
    assert said[0].counts == said[1].counts == said[2].counts
    assert Counter(said[0].violations) == Counter(said[1].violations) == Counter(said[2].violations)


def test_nothing_but_an_id_is_left_of_a_group_that_ended() -> None:
    made = ledger(record(), record(1), record(2), finals=[final((0, 0), as_of=2)])
    assert (made.groups, len(made.ended)) == ({}, 1)
    assert ledger(record(), finals=[final((0, 0), as_of=2)]).groups.keys() == {"g"}, "more may come before `as_of`"
