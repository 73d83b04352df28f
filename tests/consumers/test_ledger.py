"""The accounting identity: every record counts once, under the first term that fits (design/groups#accounting)."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rolloutlog.consumers.audit.ledger import PartitionLedger
from rolloutlog.consumers.audit.violations import Violation, repeated_seeds
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
) -> PartitionLedger:
    made = PartitionLedger(
        0, 0, frozenset(rejected or ()), finals or [], expired or [], frozenset(indexed or ()), folded
    )
    for offset, out in enumerate(records):
        event = Event(Topic.ROLLOUTS, 0, offset, 0, out.key, Headers(out.headers), out.value)
        made.fold(event)
    return made


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
    counts, _ = made.result()
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
    unreadable = replace(gone, headers=[(k, b"\xff" if k == "ce_group" else v) for k, v in gone.headers])
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
    bare = replace(record(), headers=[(k, v) for k, v in record().headers if k != "ce_digest"])
    failed = record(status=Status.FAILED)
    for first, second in ((bare, record()), (record(), bare), (bare, bare)):
        assert terms(ledger(first, second)) == {"pending": 1, "superseded.duplicate": 1}
    assert terms(ledger(bare, replace(bare, value=bare.value + b" "))) == {"pending": 2}
    assert terms(ledger(record(), failed)) == {"pending": 1, "failed": 1}


def test_a_final_event_that_names_another_partition_counts_nothing_here() -> None:
    """Nor is it named twice, though the record here has the same offset."""
    foreign = MemberOutcome(member=1, attempt=1, status="completed", handle="3/0/9")
    for here, trained in ((final(), 0), (final((0, 0)), 1)):
        here.members.append(foreign)
        counts, found = ledger(record(), finals=[here]).result()
        assert counts.terms["trained"] == trained
        assert [violation.kind for violation in found] == ["handle-of-another-partition"]


def test_a_repeated_id_with_another_value_isnt_a_duplicate() -> None:
    other = replace(record(), headers=[(k, b"0" * 64 if k == "ce_digest" else v) for k, v in record().headers])
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
    _, found = made.result()
    assert [violation.kind for violation in found] == [kind]


def test_a_row_or_a_dead_letter_answers_for_a_folded_record() -> None:
    assert ledger(record(), indexed={0}, folded=1).result()[1] == []
    assert ledger(record(), rejected={0}, folded=1).result()[1] == []
    assert ledger(record(), folded=0).result()[1] == []


def test_a_group_may_be_trained_again_in_another_pass() -> None:
    assert ledger(record(), finals=[final((0, 0)), final((0, 0), pass_number=2)]).result()[1] == []


def test_a_handle_below_the_first_offset_was_deleted_with_its_counts() -> None:
    made = PartitionLedger(0, 5, frozenset(), [final((0, 2))], [], frozenset(), None)
    assert made.result()[1] == []


def test_repeated_seeds() -> None:
    assert repeated_seeds([("a", "g", 0, 1), ("b", "h", 0, 2)]) == []
    assert repeated_seeds([("a", "g", 0, 1), ("a", "g", 0, 9)]) == [Violation("seed-twice", "g", None, 0, 9)]


records = st.builds(
    record,
    member=st.integers(0, 3),
    attempt=st.integers(1, 3),
    status=st.sampled_from(Status),
    kind=st.sampled_from(RunKind),
)


@given(st.lists(records, max_size=12), st.sets(st.integers(0, 11)), st.integers(0, 12))
def test_every_record_counts_exactly_once(made: list[Outgoing], rejected: set[int], as_of: int) -> None:
    counts, _ = ledger(*made, rejected=rejected, finals=[final((0, 0), as_of=as_of)]).result()
    assert counts.accounted == counts.produced == len(made)
