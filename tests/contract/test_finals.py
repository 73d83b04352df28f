"""Final events, expired members, and what `policy-versions` says (design/trainer#finals)."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from rolloutlog.contract.events.group_events import (
    GroupFinal,
    MemberExpired,
    MemberOutcome,
    expired_event,
    final_event,
    read_group_event,
)
from rolloutlog.contract.events.policy_versions import fold, policy_imported, policy_published, timeline_started
from rolloutlog.contract.policies import History, Policy
from rolloutlog.contract.record.value import JSON
from rolloutlog.contract.vocabulary import DropReason, EventType, RejectReason, Verdict
from rolloutlog.contract.wire.headers import Headers
from tests.cases.raw import NOW, SOURCE, Raw
from tests.cases.refusals import reason_of

BY: dict[str, Any] = {"source": SOURCE, "now": NOW}
MEMBERS = [
    MemberOutcome(member=0, attempt=1, status="completed", handle="3/7/90", verdict=Verdict.PARTLY, seq_staleness=1,
                  response_tokens=40, trainable_tokens=30),
    MemberOutcome(member=1, attempt=2, status="failed"),
]  # fmt: skip
TRAINED = GroupFinal(group="g", group_size=2, timeline=1, step=9, as_of=88, masks="digest", members=MEMBERS)
DROPPED = GroupFinal(group="g", group_size=2, timeline=1, step=9, as_of=88, reason=DropReason.ZERO_VARIANCE)
EXPIRED = MemberExpired(group="g", group_size=2, member=1, attempt=1, timeline=1, step=9, verdict=Verdict.EXPIRED)


@pytest.mark.parametrize(
    ("final", "event_type"), [(TRAINED, EventType.GROUP_TRAINED), (DROPPED, EventType.GROUP_DROPPED)]
)
def test_a_final_event_reads_back(final: GroupFinal, event_type: EventType) -> None:
    made = final_event(final, **BY)
    headers = Headers(made.headers)
    assert read_group_event(Raw.of(made).event()) == final
    assert (headers.type, headers.reason) == (event_type, final.reason)
    assert (headers.timeline, headers.step, headers.pass_number) == (1, 9, 1)


def test_a_group_ends_once_per_timeline_step_and_pass() -> None:
    """Trained or dropped: the id is the same, so that two ends of one pass are noticed."""
    assert TRAINED.event_id == DROPPED.event_id
    assert TRAINED.model_copy(update={"pass_number": 2}).event_id != TRAINED.event_id


def test_an_expired_member_reads_back_and_expires_once_an_attempt() -> None:
    made = expired_event(EXPIRED, **BY)
    assert read_group_event(Raw.of(made).event()) == EXPIRED
    assert EXPIRED.model_copy(update={"step": 12}).event_id == EXPIRED.event_id
    assert EXPIRED.model_copy(update={"attempt": 2}).event_id != EXPIRED.event_id


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (None, RejectReason.VALUE_NULL),
        (b"{", RejectReason.NOT_JSON),
        (b"[]", RejectReason.SHAPE),
        (b"{}", RejectReason.SHAPE),
        (b'{"group": "g", "more": 1}', RejectReason.SHAPE),
    ],
)
def test_what_is_no_group_event_is_rejected(body: bytes | None, reason: RejectReason) -> None:
    for made in (final_event(TRAINED, **BY), expired_event(EXPIRED, **BY)):
        assert reason_of(lambda made=made: read_group_event(Raw.of(made).holding(body, JSON).event())) is reason


@pytest.mark.parametrize("number", [2**62, 2**64 - 1, -1, True, "5", 1.5])
@pytest.mark.parametrize("name", ["timeline", "step", "group_size"])
def test_numbers_that_nobody_can_go_on_from_are_rejected(name: str, number: object) -> None:
    """The next step is one more than any on the log: a trainer must be able to write it."""
    for made in (final_event(TRAINED, **BY), expired_event(EXPIRED, **BY)):
        body = orjson.dumps(orjson.loads(made.value) | {name: number})
        assert reason_of(lambda made=made, body=body: read_group_event(Raw.of(made).holding(body, JSON).event())) is (
            RejectReason.SHAPE
        )


@pytest.mark.parametrize("as_of", [-1, 2**64 - 1, True, "88"])
def test_an_end_that_no_row_can_hold_ends_the_group_for_nobody(as_of: object) -> None:
    made = final_event(TRAINED, **BY)
    body = orjson.dumps(orjson.loads(made.value) | {"as_of": as_of})
    assert reason_of(lambda: read_group_event(Raw.of(made).holding(body, JSON).event())) is RejectReason.SHAPE


# policy-versions


def test_a_history_is_the_fold_of_its_topic() -> None:
    history = History()
    for made in (
        timeline_started(0, None, 0, run="r", **BY),
        policy_published(Policy(0, 0), run="r", **BY),
        policy_published(Policy(0, 1), run="r", uri="file:///w", digest="d", **BY),
        timeline_started(1, 0, 1, run="r", **BY),
        policy_published(Policy(1, 1), run="r", **BY),
    ):
        fold(history, Raw.of(made).event())
    assert history.current == Policy(1, 1)
    assert history.published == {Policy(0, 0), Policy(0, 1), Policy(1, 1)}
    assert history.forks[1] == (0, 1)


def test_imported_policies_are_folded_apart() -> None:
    history = History()
    fold(history, Raw.of(policy_imported(Policy(0, 3), run="r", **BY)).event())
    assert (history.imported, history.published, history.current) == ({Policy(0, 3)}, set(), None)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (None, RejectReason.VALUE_NULL),
        (b"\xff", RejectReason.NOT_JSON),
        (b"[0, 1]", RejectReason.SHAPE),
        (b"{}", RejectReason.SHAPE),
        (b'{"timeline": -1, "version": 0}', RejectReason.SHAPE),
        (b'{"timeline": 0, "version": "newest"}', RejectReason.SHAPE),
        (b'{"timeline": 0, "version": "1"}', RejectReason.SHAPE),
        (b'{"timeline": false, "version": 1}', RejectReason.SHAPE),
        (b'{"timeline": 0, "version": 2147483648}', RejectReason.SHAPE),
        (b'{"timeline": 18446744073709551615, "version": 0}', RejectReason.SHAPE),
    ],
)
def test_a_bad_policy_event_is_rejected_and_changes_nothing(body: bytes | None, reason: RejectReason) -> None:
    history = History()
    made = Raw.of(policy_published(Policy(0, 1), run="r", **BY)).holding(body, JSON)
    assert reason_of(lambda: fold(history, made.event())) is reason
    assert history == History()


@pytest.mark.parametrize("name", ["timeline", "parent", "step"])
@pytest.mark.parametrize("number", [2**31, 2**64 - 1, True, "0"])
def test_a_timeline_that_no_next_one_can_follow_is_rejected(name: str, number: object) -> None:
    made = timeline_started(1, 0, 1, run="r", **BY)
    body = orjson.dumps(orjson.loads(made.value) | {name: number})
    assert reason_of(lambda: fold(History(), Raw.of(made).holding(body, JSON).event())) is RejectReason.SHAPE


def test_a_newer_schema_of_a_policy_event_is_rejected() -> None:
    made = Raw.of(policy_published(Policy(0, 1), run="r", **BY)).but({"schema_version": b"2"})
    assert reason_of(lambda: fold(History(), made.event())) is RejectReason.SCHEMA_NEWER


def test_the_same_words_have_the_same_id() -> None:
    one, other = (policy_published(Policy(0, 1), run="r", source=SOURCE, now=now) for now in (NOW, NOW + 5))
    assert Headers(one.headers).id == Headers(other.headers).id
    assert orjson.loads(one.value) == {"timeline": 0, "version": 1}
