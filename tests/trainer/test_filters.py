"""Filters drop a group and say why (design/trainer#filters)."""

from __future__ import annotations

import pytest

from rolloutlog.contract.errors import FilterFailed, SettingsError
from rolloutlog.contract.ids import id_of
from rolloutlog.contract.settings import Settings, TrainerSettings
from rolloutlog.contract.topics import Topic
from rolloutlog.contract.vocabulary import DropReason, Verdict
from rolloutlog.kafka.run_record import read_run
from rolloutlog.trainer.dispatch.decision import DispatchPolicy, Drop, Ready
from rolloutlog.trainer.dispatch.order import OldestFirst
from rolloutlog.trainer.dispatch.sampler import Sampler
from rolloutlog.trainer.groups.filters import GroupFacts, installed_filters, with_filters
from rolloutlog.trainer.stream.group_stream import GroupStream
from tests.trainer.desk import Desk, live, rollout
from tests.trainer.log import Log
from tests.trainer.test_stream import drained, group, names


class Long:
    """Drops groups of which some member is longer than `most`."""

    name = "long"

    def __init__(self, most: int) -> None:
        self.most = most
        self.asked: list[GroupFacts] = []

    def reason(self, group: GroupFacts) -> str | None:
        self.asked.append(group)
        longest = max(member.response_tokens for member in group.members)
        return f"{longest} tokens" if longest > self.most else None


class Loud:
    name = "loud"

    def reason(self, group: GroupFacts) -> str | None:
        return "\udcff" + "x" * 3_000_000


class Broken:
    name = "broken"

    def reason(self, group: GroupFacts) -> str | None:
        raise KeyError(group.group)


def test_whatever_a_filter_says_can_be_written() -> None:
    desk = Desk()
    sampler = Sampler({0: desk.assembly}, DispatchPolicy(TrainerSettings(), live(), (Loud(),)), OldestFirst())
    desk.say(rollout(0, group="g"), rollout(1, group="g"))
    sampler.settle(0, "g", 5)
    (event,) = sampler.unwritten.events(0)
    assert event.value is not None
    assert b"loud: \\\\udcffxxx" in event.value
    assert len(event.value) < 4000


def test_the_drop_says_name_and_reason() -> None:
    desk = Desk()
    sampler = Sampler({0: desk.assembly}, DispatchPolicy(TrainerSettings(), live(), (Long(4),)), OldestFirst())
    for name, tokens in (("short", 2), ("long", 7)):
        desk.say(rollout(0, [4] * tokens, group=name), rollout(1, group=name))
        sampler.settle(0, name, 5)
    (final,) = sampler.unwritten.dropped
    assert (final.group, final.reason, final.detail) == ("long", DropReason.FILTERED, "long: 7 tokens")
    assert [m.response_tokens for m in final.members] == [7, 2]
    assert [pick.pending.id for pick in sampler.pick(2, 5)] == ["short"]


def test_it_is_asked_again_only_about_what_may_have_changed() -> None:
    """A group that was judged by its values isn't judged twice for one step (design/trainer#draw)."""
    desk, long = Desk(), Long(9)
    sampler = Sampler({0: desk.assembly}, DispatchPolicy(TrainerSettings(), live(), (long,)), OldestFirst())
    made = [rollout(0, size=3, group_train=2), rollout(1, size=3, group_train=2)]
    desk.say(*made)
    sampler.settle(0, "g", 5)
    assert sampler.pick(1, 5)[0].verdict is sampler.pick(1, 5)[0].verdict
    assert len(long.asked) == 1
    desk.annotate(made[0], {"judge": "good"})
    sampler.settle(0, "g", 5)
    assert len(sampler.pick(1, 5)) == 1
    assert len(long.asked) == 2
    assert len(sampler.pick(1, 6)) == 1
    assert [group.step for group in long.asked] == [5, 5, 6]


def test_it_is_told_what_would_be_trained() -> None:
    """The kept members alone, with late facts and the rewards that count."""
    desk, long = Desk(), Long(9)
    made = [rollout(i, 4 if i else 0, size=3, group_train=2, env="math") for i in range(3)]
    desk.say(*made)
    desk.annotate(made[2], {"reward": 7.0, "judge": "good"})
    decision = DispatchPolicy(TrainerSettings(), live(), (long,)).decide(desk.pending(), 5, desk.now)
    assert isinstance(decision, Ready)
    (facts,) = long.asked
    assert (facts.group, facts.size, facts.env, facts.step, facts.rewards) == ("g", 3, "math", 5, [1.0, 7.0])
    assert [(m.member, m.verdict, m.trainable_tokens) for m in facts.members] == [
        (1, Verdict.FRESH, 2),
        (2, Verdict.FRESH, 2),
    ]
    assert facts.members[1].notes["judge"] == "good"


def test_a_group_that_teaches_nothing_is_no_filters_business() -> None:
    desk, long = Desk(), Long(9)
    desk.say(rollout(0, reward=1.0), rollout(1, reward=1.0))
    decision = DispatchPolicy(TrainerSettings(), live(), (long,)).decide(desk.pending(), 5, desk.now)
    assert isinstance(decision, Drop)
    assert (decision.reason, long.asked) == (DropReason.ZERO_VARIANCE, [])


def test_a_filter_that_fails_is_named() -> None:
    desk = Desk()
    desk.say(rollout(0), rollout(1))
    with pytest.raises(FilterFailed, match=r"filter broken failed on group g: KeyError\('g'\)"):
        DispatchPolicy(TrainerSettings(), live(), (Broken(),)).decide(desk.pending(), 5, desk.now)


def test_filters_are_recorded_by_name_and_one_that_is_not_installed_is_refused() -> None:
    assert with_filters(Settings(), [Long(1)]).trainer.recorded()["filters"] == ["long"]
    assert with_filters(Settings(), [Long(1)]).trainer.digest != Settings().trainer.digest
    with pytest.raises(SettingsError, match="two filters have one name"):
        with_filters(Settings(), [Long(1), Long(2)])
    with pytest.raises(SettingsError, match="nowhere isn't installed"):
        installed_filters(["nowhere"])


@pytest.mark.broker
async def test_a_stream_drops_what_its_filter_finds_and_records_both(log: Log) -> None:
    await log.write(*group("short"), *(rollout(i, [0] * 7, group=id_of("long")) for i in range(2)))
    async with GroupStream(log.settings, filters=[Long(4)]) as stream:
        assert [names(batch) for batch in await drained(stream)] == [{id_of("short")}]
    finals = {final.group: final for final in await log.finals()}
    assert (finals[id_of("long")].reason, finals[id_of("long")].detail) == (DropReason.FILTERED, "long: 7 tokens")
    assert finals[id_of("short")].reason is None
    recorded = (await read_run(await log.at_rest(Topic.RUN))).trainer or {}
    assert recorded["filters"] == ["long"]
    assert {final.settings for final in finals.values()} == {with_filters(log.settings, [Long(4)]).trainer.digest}


@pytest.mark.broker
async def test_a_filter_that_fails_in_a_stream_drops_nothing(log: Log) -> None:
    await log.write(*group("a"), *group("b"))
    async with GroupStream(log.settings, filters=[Broken()]) as stream:
        with pytest.raises(FilterFailed, match="filter broken failed on group"):
            await anext(stream.batches())
    assert not await log.finals()
    async with GroupStream(log.settings) as stream:
        assert [names(batch) for batch in await drained(stream)] == [{id_of("a"), id_of("b")}]
