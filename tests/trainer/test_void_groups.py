"""What a resume leaves open must neither stall the run nor hold a watermark (design/trainer#timelines)."""

from __future__ import annotations

import pytest

from rolloutlog.contract.ids import id_of
from rolloutlog.contract.settings import Settings
from rolloutlog.contract.vocabulary import DropReason
from rolloutlog.trainer.dispatch.decision import Reroll
from rolloutlog.trainer.groups.assembly import Assembly
from rolloutlog.trainer.groups.ended_groups import EndedGroups
from rolloutlog.trainer.stream.group_stream import GroupStream
from rolloutlog.trainer.stream.starting import Start
from tests.trainer.desk import Desk, rollout
from tests.trainer.test_decision import kept
from tests.trainer.test_starts import made, marks_of, steps
from tests.trainer.test_stream import drained, group, names


def test_a_void_group_is_closed_once_all_is_folded_that_its_final_event_had_looked_at() -> None:
    endings = EndedGroups()
    endings.void("g", 3, 0)
    desk = Desk(Assembly(0, endings))
    desk.say(rollout(0, size=4), rollout(1, size=4))
    assert desk.assembly.close_void() == []
    desk.say(rollout(0, group="other"))
    assert desk.assembly.close_void() == [desk.pending()]
    assert kept(desk.decide(5)) == [0, 1], "two members that nobody makes any more count as cancelled"
    assert desk.assembly.close_void() == [], "once"
    desk.say(rollout(2, size=4))
    assert kept(desk.decide(5)) == [0, 1, 2], "one that came all the same"


def test_three_members_complete_and_one_that_expired_and_is_given_up_end_their_group() -> None:
    """A lease was lost, the tries are over: the shard cancels that member, and nobody is held for ever."""
    desk = Desk()
    desk.say(*(rollout(i, 0 if i == 3 else 4, size=4) for i in range(4)))
    asked = desk.decide(5)
    assert isinstance(asked, Reroll)
    assert [member.member for member in asked.members] == [3]
    desk.pending().expire(3, 1, desk.now)
    desk.cancel([3], size=4)
    assert kept(desk.decide(5)) == [0, 1, 2]


@pytest.mark.broker
async def test_a_resume_far_back_trains_what_its_open_groups_have_and_waits_for_nobody(settings: Settings) -> None:
    """A group that was trained with what it had by a later step, one of whose members never comes."""
    deadline = {"type": "deadline", "seconds": 0.2, "k": 2}
    log = await made(settings, straggler=deadline, staleness={"max_staleness": None})
    async with GroupStream(log.settings) as stream:
        await steps(stream, log, 1, checkpoint=True)
        await log.write(*(rollout(i, 1, group=id_of("torn"), size=3) for i in range(2)))
        batch = await anext(stream.batches())
        assert names(batch) == {id_of("torn")}
        await stream.trained(batch, publish="s3://w/2")
        await steps(stream, log, *range(3, 9))
    waiting = made_to_wait(log.settings)
    async with GroupStream(waiting, Start(resume="checkpoint")) as stream:
        again = [names(batch) for batch in await drained(stream)]
    assert again[0] == {id_of("torn")}
    assert len(again) == 7
    mark = (await marks_of(log)).partitions[0]
    assert (mark.first, mark.low) == (None, 16)


def made_to_wait(settings: Settings) -> Settings:
    """The same trainer, waiting for every member that may come."""
    trainer = settings.trainer.model_dump() | {"straggler": {"type": "wait"}, "starve_s": 30}
    return Settings.model_validate(settings.model_dump() | {"trainer": trainer})


@pytest.mark.broker
async def test_a_group_that_was_dropped_as_stale_holds_no_watermark(settings: Settings) -> None:
    """Elsewhere it pinned the position of a resume for ever."""
    log = await made(settings, staleness={"max_staleness": 1, "on_expire": {"type": "drop-group"}})
    async with GroupStream(log.settings) as stream:
        await steps(stream, log, 1, 2, 3)
        await log.write(*group("stale", 0))
        await steps(stream, log, 4, checkpoint=True)
    (final,) = [final for final in await log.finals() if final.group == id_of("stale")]
    assert final.reason is DropReason.EXPIRED
    mark = (await marks_of(log)).partitions[0]
    assert (mark.first, mark.low) == (None, 10)
