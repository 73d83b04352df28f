"""A trainer that gets nothing whole (design/trainer#starvation)."""

from __future__ import annotations

import asyncio

import pytest

from rolloutlog.contract.errors import BrokerUnreachable, Starved
from rolloutlog.contract.events.event import Event
from rolloutlog.contract.ids import id_of
from rolloutlog.contract.policies import Policy
from rolloutlog.trainer.stream.group_stream import GroupStream
from rolloutlog.trainer.stream.intake import Intake
from rolloutlog.trainer.stream.starting import Start
from rolloutlog.trainer.stream.starvation import StarvationClock
from tests.trainer.desk import rollout
from tests.trainer.log import Log
from tests.trainer.test_stream import group, names, with_trainer


@pytest.mark.broker
async def test_members_that_trickle_in_are_no_progress(log: Log) -> None:
    """It waited for ever on groups that never got whole."""
    await log.bring(0)

    async def trickle() -> None:
        for number in range(1000):
            await log.write(rollout(0, 0, group=id_of(number)))

    async with GroupStream(with_trainer(log.settings, starve_s=1.5)) as stream:
        trickling = asyncio.create_task(trickle())
        with pytest.raises(Starved, match=r"no whole group for 1.5 s: 0 of 2 groups are ready"):
            await asyncio.wait_for(anext(stream.batches()), 60)
        trickling.cancel()


@pytest.mark.broker
async def test_it_says_what_came_and_couldnt_be_trained(log: Log) -> None:
    """A run whose rollouts are all too old read like an empty one."""
    settings = with_trainer(log.settings, starve_s=1.0, batch_groups=1, staleness={"on_expire": {"type": "drop-group"}})
    async with GroupStream(settings, Start(step=5)) as stream:
        await log.publish(Policy(0, 4))
        await log.write(*group("good", 4))
        batches = stream.batches()
        await stream.trained(await anext(batches))
        await log.publish(Policy(0, 5))
        await log.write(*group("old"), *group("older"), *group("stray", 99))
        said = r"trainer dropped 3 groups \(expired 2, survivors 1\), rejected 2 records \(policy-unknown 2\)"
        for _ in range(2):
            with pytest.raises(Starved, match=said):
                await anext(batches)
        await log.write(*group("late", 5))
        late = await anext(batches)
        assert names(late) == {id_of("late")}, "and goes on"
        report = await stream.trained(late)
        assert report.dropped == {"expired": 2, "survivors": 1}, "though they were told before"
        await log.write(*group("last", 5))
        assert (await stream.trained(await anext(batches))).dropped == {}


@pytest.mark.broker
async def test_a_trainer_that_lacks_nothing_but_its_own_weights_says_so_at_once(log: Log) -> None:
    """It would wait for ever: what is sampled now expires at the step that is collected (design/trainer#doomed)."""
    settings = with_trainer(log.settings, batch_groups=1, starve_s=600, staleness={"max_staleness": 0})
    async with GroupStream(settings) as stream:
        await log.write(*group("a"))
        batches = stream.batches()
        await stream.trained(await anext(batches))
        await log.write(*group("b"))
        for _ in range(2):
            with pytest.raises(Starved, match=r"weights were published last after step 0: .* too old for step 2"):
                await asyncio.wait_for(anext(batches), 30)
        assert not await log.expired(), "nobody is asked for what would expire again"
        await log.publish(Policy(0, 1))
        await log.write(*group("c", 1))
        assert names(await asyncio.wait_for(anext(batches), 30)) == {id_of("c")}, "and goes on once they are there"
        await batches.aclose()
    assert {one.group for one in await log.expired()} == {id_of("b")}


@pytest.mark.broker
async def test_what_was_polled_is_folded_though_folding_fails(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was read with a record that failed was lost, and its group was trained with fewer members."""
    fold, failed = Intake._fold, set[tuple[int, int]]()

    async def failing(self: Intake, event: Event, keep: bool) -> None:
        if (event.partition, event.offset) not in failed:
            failed.add((event.partition, event.offset))
            raise BrokerUnreachable("the claim can't be read now")
        await fold(self, event, keep)

    monkeypatch.setattr(Intake, "_fold", failing)
    await log.bring(0)
    await log.write(*(rollout(member, 0, group=id_of("a"), size=4) for member in range(4)))
    async with GroupStream(log.settings) as stream:
        batches = stream.batches(1)
        for _ in range(4):
            with pytest.raises(BrokerUnreachable):
                await anext(batches)
        batch = await anext(batches)
        assert len(batch.groups[0].members) == 4


def test_the_clock_runs_while_somebody_waits_and_starts_anew_at_a_whole_group() -> None:
    clock = StarvationClock(10)
    assert not clock.late(100), "nobody waits"
    clock.run(100)
    clock.pause(106)
    clock.run(200)
    assert not clock.late(203.9)
    assert clock.late(204)
    clock.progress(205)
    assert not clock.late(214.9)
    assert clock.late(215)
