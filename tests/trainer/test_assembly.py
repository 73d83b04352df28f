"""Groups folded from a partition (design/groups#standing)."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rolloutlog.buffer.group.group import Group
from rolloutlog.buffer.group.member import MemberStatus
from rolloutlog.contract.events.body import Body
from rolloutlog.contract.events.event import taken_event
from rolloutlog.contract.ids import digest_of
from rolloutlog.contract.record.value import SAFETENSORS
from rolloutlog.contract.vocabulary import RejectReason, RunKind, Status
from rolloutlog.contract.wire.claims import CLAIM, Claim
from rolloutlog.contract.wire.rejection import Rejected
from rolloutlog.trainer.dispatch.decision import Ready, Waiting
from rolloutlog.trainer.groups.assembly import Assembly
from rolloutlog.trainer.groups.pending_group import PendingGroup
from rolloutlog.trainer.groups.rollout_facts import Arrived, Bad, fact_of
from tests.cases.bad_inputs import BAD_INPUTS, BadInput
from tests.cases.raw import Raw
from tests.trainer.desk import Desk, ended, rollout


@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_the_order_in_which_members_come_makes_no_difference(order: tuple[int, ...]) -> None:
    desk = Desk()
    desk.say(*(rollout(i, size=3) for i in order))
    decision = desk.decide()
    assert isinstance(decision, Ready)
    assert {m.member for m in decision.verdict.members} == {0, 1, 2}


def test_the_same_attempt_twice_counts_once() -> None:
    """The same attempt twice is harmless (decisions/staleness#25)."""
    desk = Desk()
    desk.say(rollout(0), rollout(0))
    assert isinstance(desk.decide(), Waiting)
    assert len(desk.pending().tokens) == 1


def test_a_lower_attempt_that_comes_late_is_fenced() -> None:
    """Late and lower attempts are fenced (decisions/staleness#26)."""
    desk = Desk()
    desk.say(rollout(0, 4, attempt=2), rollout(0, 3, attempt=1))
    assert desk.pending().tokens[0].attempt == 2


def test_a_higher_attempt_replaces_tokens_and_payload() -> None:
    desk = Desk()
    desk.say(rollout(0, 3), rollout(0, [4] * 5, attempt=2))
    assert desk.pending().tokens[0].response_tokens == 5
    assert desk.pending().payloads[0].slot.attempt == 2
    desk.say(ended(rollout(0, attempt=3), Status.ABORTED))
    assert desk.pending().tokens[0].attempt == 3
    assert not desk.pending().payloads


def test_a_bad_record_of_a_higher_attempt_leaves_nothing_of_the_one_before() -> None:
    desk = Desk()
    desk.say(rollout(0, 4))
    bad = rollout(0, 4, attempt=2)
    bad.trajectory.logprobs[0] = float("nan")
    desk.say(bad)
    assert (desk.pending().tokens, desk.pending().payloads) == ({}, {})


def test_eval_rollouts_and_takes_are_not_the_trainers() -> None:
    """Eval rollouts never train (design/groups#accounting)."""
    desk = Desk()
    desk.say(rollout(0, kind=RunKind.EVAL))
    desk.say(
        taken_event(group="g", group_size=2, seed="s", worker="w", renewal=0, lease_ms=1, source="/test", now=desk.now)
    )
    assert not desk.assembly.groups
    assert desk.assembly.next_offset == 2


def test_a_group_that_ended_takes_nothing_more() -> None:
    """superseded(late) (design/groups#accounting)."""
    desk = Desk()
    desk.say(rollout(0), rollout(1))
    desk.assembly.end("g")
    desk.say(rollout(0, attempt=2))
    assert not desk.assembly.groups


def test_what_comes_after_the_draw_is_folded_and_late_once_the_group_ends() -> None:
    """It counts if the batch goes back (design/trainer#lending)."""
    desk = Desk()
    desk.say(rollout(0), rollout(1))
    desk.pending().drawn = True
    desk.say(rollout(0, attempt=2))
    assert desk.pending().tokens[0].attempt == 2
    desk.assembly.end("g")
    desk.say(rollout(1, attempt=2))
    assert "g" not in desk.assembly.groups


def test_ended_groups_can_be_folded_again_as_they_were_drawn() -> None:
    """For looking: records below `as_of` alone."""
    desk = Desk(Assembly(0, shown={"g": 2}))
    desk.say(rollout(0), rollout(1), rollout(0, attempt=2))
    assert desk.pending().tokens[0].attempt == 1


def test_expired_attempts_that_are_on_the_log_count_from_the_first_record() -> None:
    """A restart judges no attempt twice."""
    desk = Desk()
    desk.assembly.endings.expire("g", 0, 1, 7)
    desk.say(rollout(0), rollout(1))
    assert isinstance(desk.decide(), Waiting)
    assert desk.pending().tries == {0: 1}
    desk.say(rollout(0, attempt=2))
    assert isinstance(desk.decide(), Ready)


def test_nothing_below_the_low_watermark_is_unresolved() -> None:
    """What a start needs (design/trainer#memory)."""
    desk = Desk()
    assert desk.assembly.low_watermark == 0
    desk.say(rollout(0, group="a"), rollout(0, group="b"))
    assert desk.assembly.low_watermark == 0
    for group, low in (("a", 1), ("b", 2)):
        desk.assembly.end(group)
        assert desk.assembly.low_watermark == low - 1, "its final event isn't on the log"
        desk.assembly.endings.finish(group, 1, 0, first=0)
        assert desk.assembly.low_watermark == low - 1, "its step isn't closed"
        desk.assembly.endings.close(1)
        assert desk.assembly.low_watermark == low


ALONE = [row for row in BAD_INPUTS if row.found_in in ("headers", "value", "group", "nothing")]


@pytest.mark.parametrize("row", ALONE, ids=[row.name for row in ALONE])
def test_the_table_of_bad_inputs(row: BadInput) -> None:
    """One table drives buffer and trainer: the slot is resolved as it says, and the sound member is never lost."""
    assembly = Assembly(0)
    for offset, written in enumerate(row.records()):
        event = written.raw.event(offset=offset)
        if assembly.wants(event):
            assembly.fold(event, fact_of(event, 6))
    if not row.records():
        assert not assembly.groups
        return
    group = assembly.groups[row.group].group
    assert group.status(0) == "completed"
    assert group.status(1) == row.ends_for("trainer")
    if row.ends == "completed":
        assert assembly.groups[row.group].tokens[1].attempt == row.attempt


def test_a_claim_is_read_from_its_body() -> None:
    raw = Raw.of(rollout(0))
    body = raw.value or b""
    claim = Claim(url="file:///x", size=len(body), digest=digest_of(body), content_type=SAFETENSORS)
    event = replace(raw.but({"content_type": CLAIM.encode()}), value=claim.encode()).event(1)
    fact = fact_of(event, 1, Body(body, claim.content_type))
    assert isinstance(fact, Arrived)
    assert fact.payload.body == Body(body, claim.content_type)
    assert isinstance(fact_of(event, 1, Body(body[:-1] + b"?", claim.content_type)), Bad)


GOOD = Raw.of(rollout(0))
NAMES = [name for name, _ in GOOD.headers]
header_bytes = st.binary(max_size=12) | st.sampled_from([b"1", b"0", b"-1", b"true", b"eval", b"group.cancelled"])


@given(
    st.dictionaries(st.sampled_from(NAMES), st.none() | header_bytes, max_size=4),
    st.none() | st.binary(max_size=64) | st.just(GOOD.value),
)
def test_arbitrary_headers_and_values_never_crash_the_fold(
    headers: dict[str, bytes | None], value: bytes | None
) -> None:
    """Whatever lies on the log, the offset moves on."""
    event = replace(GOOD.but(headers), value=value).event(1)
    assembly = Assembly(0)
    if assembly.wants(event):
        assembly.fold(event, fact_of(event, 1))
        assert assembly.next_offset == 1


@pytest.mark.parametrize("reason", [RejectReason.ORIGIN, RejectReason.CONFLICT, RejectReason.SCHEMA_NEWER])
def test_a_reason_found_in_headers_resolves_nothing(reason: RejectReason) -> None:
    pending = PendingGroup(Group("g"), 0, 0, 0)
    pending.reject(rollout(0).slot, Rejected(reason, ""))
    assert pending.group.status(0) is MemberStatus.OPEN
    pending.reject(rollout(0).slot, Rejected(RejectReason.NOT_JSON, ""))
    assert pending.group.status(0) is MemberStatus.FAILED


def test_a_cancelled_member_of_an_eval_group_is_none_of_ours() -> None:
    """Its siblings' records are passed over, so nobody may wait for them."""
    desk = Desk()
    desk.say(rollout(0, size=2, kind=RunKind.EVAL))
    desk.cancel([1], kind=RunKind.EVAL)
    assert not desk.assembly.groups


def test_a_wait_for_members_that_were_asked_again_goes_on_after_a_start() -> None:
    """From when they were asked, not from the group's first record, which is read anew."""
    desk = Desk()
    desk.assembly.endings.expire("g", 0, 1, 7, at=desk.now + 5_000)
    desk.say(rollout(1))
    assert (desk.pending().tries, desk.pending().asked_at) == ({0: 1}, desk.now - 1 + 5_000)
