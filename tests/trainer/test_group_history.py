"""What counts of the events that are on the log when a trainer starts (design/trainer#timelines)."""

from __future__ import annotations

from rolloutlog.contract.events.event import Event, Outgoing
from rolloutlog.contract.events.group_events import GroupFinal, MemberExpired, expired_event, final_event
from rolloutlog.contract.policies import History, Policy
from rolloutlog.contract.topics import Topic
from rolloutlog.contract.vocabulary import DropReason, Verdict
from rolloutlog.contract.wire.headers import Headers
from rolloutlog.trainer.groups.assembly import Assembly
from rolloutlog.trainer.restarts.group_history import GroupHistory
from rolloutlog.trainer.stream.group_view import informed
from rolloutlog.trainer.stream.starting import Start, first_step


def resumed() -> History:
    """Timeline 1 goes on from step 5 of timeline 0."""
    history = History()
    history.start(0, None, 0)
    history.start(1, 0, 5)
    history.publish(Policy(1, 5))
    return history


def final(group: str, timeline: int, step: int, reason: DropReason | None = None) -> Outgoing:
    made = GroupFinal(group=group, group_size=2, timeline=timeline, step=step, reason=reason, as_of=7)
    return final_event(made, source="/trainer", now=0)


def expired(group: str, timeline: int, step: int) -> Outgoing:
    made = MemberExpired(
        group=group, group_size=2, member=1, attempt=2, timeline=timeline, step=step, verdict=Verdict.EXPIRED
    )
    return expired_event(made, source="/trainer", now=0)


def past(*events: Outgoing) -> GroupHistory:
    made = GroupHistory()
    for offset, out in enumerate(events):
        event = Event(Topic.GROUP_EVENTS, 0, offset, 0, out.key, Headers(out.headers), out.value)
        made.fold(event, resumed())
    return made


def test_finals_above_a_fork_are_void_and_may_be_trained_again() -> None:
    found = past(final("shared", 0, 5), final("void", 0, 6), final("new", 1, 6), final("stray", 2, 1))
    assert set(found.finals) == {"shared", "new"}


def test_an_expired_member_is_never_void() -> None:
    (one,) = past(expired("g", 0, 9)).expired["g"]
    assert (one.member, one.attempt) == (1, 2)


def test_events_that_cant_be_read_are_passed_by() -> None:
    bad = Event(Topic.GROUP_EVENTS, 0, 0, 0, b"g", Headers([("ce_type", b"group.trained")]), b"{")
    made = GroupHistory()
    made.fold(bad, resumed())
    made.fold(Event(Topic.GROUP_EVENTS, 0, 1, 0, b"g", Headers([]), None), resumed())
    assert not made.finals


def test_an_assembly_that_shows_ended_groups_folds_them_up_to_where_they_ended() -> None:
    found = past(final("a", 1, 6), final("void", 0, 6), expired("g", 0, 9))
    made = informed(Assembly(0, shown=found.shown), found)
    assert made.shown == {"a": 7}
    assert made.endings.said["g"].expired == [(1, 2)]
    assert made.endings.said["void"].void_below == 7


def test_the_next_step_is_after_what_was_trained_and_what_was_published() -> None:
    trained = past(final("a", 1, 8), final("b", 1, 9, DropReason.EXPIRED))
    assert first_step(Start(), resumed(), trained.last_step) == 9
    assert first_step(Start(), resumed(), None) == 6
    assert first_step(Start(step=3), resumed(), trained.last_step) == 3
    assert first_step(Start(), History(), None) is None
