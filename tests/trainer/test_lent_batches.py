"""Batches that are abandoned, told while others are drawn, told again: on a real broker (design/trainer#lending)."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Coroutine
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from rolloutlog.consumers.audit.auditor import audit
from rolloutlog.contract.errors import Fenced, NotOpen, SettingsError
from rolloutlog.contract.ids import id_of
from rolloutlog.contract.policies import Policy
from rolloutlog.contract.vocabulary import DropReason
from rolloutlog.trainer.stream.group_stream import GroupStream
from tests.trainer.desk import rollout
from tests.trainer.log import Log
from tests.trainer.test_stream import drained, group, names, with_trainer
from tests.trainer.wire_faults import MOMENTS, WireFaults, lost

pytestmark = pytest.mark.broker


async def trained_once(log: Log, *expected: str) -> None:
    finals = Counter(final.group for final in await log.finals() if final.reason is None)
    assert finals == Counter(map(id_of, expected))
    assert (await audit(log.settings)).ok


async def test_a_batch_that_isnt_told_comes_again_when_the_iterator_goes_on(
    log: Log, caplog: pytest.LogCaptureFixture
) -> None:
    await log.bring(0)
    await log.write(*group("a"), *group("b"), *group("c"), *group("d"))
    async with GroupStream(log.settings) as stream:
        batches = stream.batches()
        first = await anext(batches)
        again = await anext(batches)
        assert names(first) == names(again)
        assert "goes back, since it wasn't told" in caplog.text
        with pytest.raises(ValueError, match="isn't lent any more"):
            await stream.trained(first)
        await stream.trained(again)
        rest = await anext(batches)
        assert names(rest) | names(again) == {id_of(name) for name in "abcd"}
        await stream.trained(rest)
    await trained_once(log, *"abcd")


@pytest.mark.parametrize("how", ["break", "raise", "close"])
async def test_a_batch_that_is_abandoned_comes_again_in_the_next_loop(log: Log, how: str) -> None:
    async with GroupStream(log.settings) as stream:
        await log.write(*group("a"), *group("b"))
        seen: list[tuple[int | None, set[str]]] = []
        with pytest.raises(LookupError) if how == "raise" else nullcontext():
            batches = stream.batches()
            async for batch in batches:
                seen.append((batch.step, names(batch)))
                if how == "raise":
                    raise LookupError
                break
            if how == "close":
                await batches.aclose()
        async for batch in stream.batches(drain=True):
            seen.append((batch.step, names(batch)))
            await stream.trained(batch)
    assert seen == [(1, {id_of("a"), id_of("b")})] * 2
    await trained_once(log, "a", "b")


async def test_a_wait_that_times_out_leaves_a_stream_that_goes_on(log: Log) -> None:
    """It lost members, and the group was trained with 2 of 4."""
    await log.bring(0)
    async with GroupStream(with_trainer(log.settings, batch_groups=1)) as stream:
        batches = stream.batches()
        for member in range(4):
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(anext(batches), 0.2)
            await log.write(rollout(member, 0, group=id_of("a"), size=4))
        batch = await anext(batches)
        assert len(batch.groups[0].members) == 4
        await stream.trained(batch)
    await trained_once(log, "a")


async def test_a_wait_may_be_cancelled_wherever_it_waits(log: Log) -> None:
    """At every await, over and over, while members come one by one: no group loses any."""
    dice = random.Random(7)
    await log.bring(0)
    records = [rollout(member, 0, group=id_of(name), size=4) for name in range(6) for member in range(4)]
    sizes: list[int] = []
    async with GroupStream(with_trainer(log.settings, batch_groups=1)) as stream:
        batches = stream.batches()
        writing = asyncio.create_task(_one_by_one(log, records))
        while len(sizes) < 6:
            waiting = asyncio.create_task(anext(batches))
            for _ in range(dice.randrange(40)):
                await asyncio.sleep(0)
            if dice.random() < 0.3:
                await asyncio.sleep(0.02)
            waiting.cancel()
            try:
                batch = await waiting
            except asyncio.CancelledError:
                continue
            sizes.append(len(batch.groups[0].members))
            await stream.trained(batch)
        await writing
    assert sizes == [4] * 6


async def _one_by_one(log: Log, records: list[Any]) -> None:
    for record in records:
        await log.write(record)


@pytest.mark.parametrize(("kind", "when"), MOMENTS)
async def test_a_telling_that_is_cancelled_at_a_request_is_heard_by_who_tells_again(
    log: Log, faults: WireFaults, kind: str, when: str
) -> None:
    async with GroupStream(with_trainer(log.settings, batch_groups=1)) as stream:
        await log.write(*group("a"), *group("b"))
        async for batch in stream.batches(drain=True):
            telling = asyncio.create_task(stream.trained(batch, publish=f"s3://w/{batch.step}"))

            async def cancel(telling: asyncio.Task[Any] = telling) -> None:
                telling.cancel()
                await asyncio.sleep(0)

            faults.plan(kind, when, cancel)
            with pytest.raises(asyncio.CancelledError):
                await telling
            report = await stream.trained(batch, publish=f"s3://w/{batch.step}")
            assert (report.step, report.groups) == (batch.step, 1)
            assert stream.history.current == Policy(0, batch.step or 0)
            with pytest.raises(ValueError, match="recorded before"):
                await stream.trained(batch)
    await trained_once(log, "a", "b")


async def test_a_telling_that_is_cancelled_counts_though_nobody_asks_again(log: Log) -> None:
    async with GroupStream(log.settings) as stream:
        await log.write(*group("a"), *group("b"))
        batch = await anext(stream.batches())
        telling = asyncio.create_task(stream.trained(batch))
        await asyncio.sleep(0)
        telling.cancel()
    await trained_once(log, "a", "b")


async def test_telling_while_the_next_batch_is_drawn_loses_nothing(log: Log) -> None:
    """Two writers shared a transaction, and what was noted while one wrote was forgotten."""
    settings = with_trainer(log.settings, batch_groups=1)
    await log.bring(0)
    good = [f"good{number}" for number in range(8)]
    bad = [f"equal{number}" for number in range(8)]
    async with GroupStream(settings) as stream:
        batches, tellings = stream.batches(), list[asyncio.Task[Any]]()
        for name, equal in zip(good, bad, strict=True):
            await log.write(*group(name), *(rollout(i, 0, group=id_of(equal), reward=1.0) for i in range(2)))
            tellings.append(asyncio.create_task(stream.trained(await anext(batches))))
            await asyncio.sleep(0)
        await asyncio.gather(*tellings)
        await drained(stream)
    dropped = [final.group for final in await log.finals() if final.reason is DropReason.ZERO_VARIANCE]
    assert sorted(dropped) == sorted(map(id_of, bad))
    await trained_once(log, *good)


async def test_tellings_that_overlap_keep_their_order(log: Log) -> None:
    """The policy never moves back, and a batch whose predecessor isn't told waits for nobody."""
    settings = with_trainer(log.settings, batch_groups=1, staleness={"max_staleness": "none"})
    async with GroupStream(settings) as stream:
        await log.write(*group("a"), *group("b"), *group("c"))
        batches = stream.batches()
        told = list[Coroutine[Any, Any, Any]]()
        for _ in range(3):
            batch = await anext(batches)
            told.append(stream.trained(batch, publish=f"s3://w/{batch.step}"))
        await asyncio.gather(*reversed(told))
        assert (stream.history.current, stream.step) == (Policy(0, 3), 4)
    assert sorted(final.step for final in await log.finals()) == [1, 2, 3]
    await trained_once(log, *"abc")


async def test_a_batch_drawn_ahead_goes_back_with_the_one_before_it(log: Log) -> None:
    async with GroupStream(with_trainer(log.settings, batch_groups=1)) as stream:
        await log.write(*group("a"), *group("b"))
        batches = stream.batches(ahead=True)
        first = await anext(batches)
        ahead = await anext(batches)
        assert (first.step, ahead.step, names(first)) == (1, 1, names(ahead)), "untold, it comes again"
        await asyncio.sleep(0.2)
        await stream.trained(ahead)
        second = await anext(batches)
        assert (second.step, names(second)) == (2, {id_of("a"), id_of("b")} - names(first)), "whichever was read first"
        await stream.trained(second)
    await trained_once(log, "a", "b")


async def test_groups_are_left_out_by_name_in_the_same_transaction(log: Log) -> None:
    async with GroupStream(log.settings) as stream:
        await log.write(*group("a"), *group("b"))
        batch = await anext(stream.batches())
        with pytest.raises(ValueError, match="aren't in the batch: x"):
            await stream.trained(batch, without={"x": DropReason.SURVIVORS})
        report = await stream.trained(batch, without={id_of("b"): DropReason.NO_TOKEN})
        assert (report.groups, report.dropped) == (1, {"no-token": 1})
    reasons = {final.group: (final.reason, final.masks is None) for final in await log.finals()}
    assert reasons == {id_of("a"): (None, False), id_of("b"): (DropReason.NO_TOKEN, True)}
    assert (await audit(log.settings)).ok


async def test_a_step_that_failed_may_be_told_again(
    log: Log, faults: WireFaults, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing was written: it is lent as before."""
    async with GroupStream(with_trainer(log.settings, write_s=0.001)) as stream:
        await log.write(*group("a"), *group("b"))
        batch = await anext(stream.batches())
        monkeypatch.setattr(stream._parts.writer, "_try_s", 1.0)
        faults.plan("Produce", "before", lambda: asyncio.sleep(30))
        with pytest.raises(Exception, match="nothing was written"):
            await stream.trained(batch)
        await stream.trained(batch)
    await trained_once(log, "a", "b")


async def test_a_rival_ends_a_stream_that_says_so_at_every_turn(log: Log, faults: WireFaults) -> None:
    await log.bring(0)
    await log.write(*group("a"), *group("b"), *group("c"), *group("d"))
    async with GroupStream(log.settings) as first:
        batches = first.batches()
        batch = await anext(batches)
        async with GroupStream(log.settings) as second:
            assert names((await drained(second))[0]) == names(batch)
        for ask in (lambda: first.trained(batch), lambda: anext(batches)):
            with pytest.raises(Fenced, match="another trainer has started"):
                await ask()
    await trained_once(log, *"abcd")


async def test_four_that_fight_train_no_group_twice(log: Log) -> None:
    await log.bring(0)
    everything = [str(number) for number in range(24)]
    settings = with_trainer(log.settings, batch_groups=1)

    async def fight(wait: float) -> int:
        await asyncio.sleep(wait)
        told = 0
        async with GroupStream(settings) as stream:
            async for batch in stream.batches(drain=True):
                await stream.trained(batch)
                told += 1
        return told

    await log.write(*(member for name in everything for member in group(name)))
    outcomes = await asyncio.gather(*(fight(number * 0.4) for number in range(4)), return_exceptions=True)
    assert all(isinstance(outcome, int | Fenced) for outcome in outcomes), outcomes
    async with GroupStream(settings) as stream:
        await drained(stream)
    await trained_once(log, *everything)


async def test_an_answer_that_is_lost_costs_no_step(log: Log, faults: WireFaults) -> None:
    async with GroupStream(log.settings) as stream:
        await log.write(*group("a"), *group("b"))
        batch = await anext(stream.batches())
        faults.plan("EndTxn", "after", lost)
        assert (await stream.trained(batch)).groups == 2
    await trained_once(log, "a", "b")


async def test_who_is_cancelled_before_the_iterator_before_has_left_has_no_turn(log: Log) -> None:
    """Else two read at once, and what the first one draws is lent to nobody and holds all steps after it."""
    async with GroupStream(log.settings) as stream:
        first, second = stream.batches(), stream.batches()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(anext(first), 0.7)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(anext(second), 0.01)  # the first one's wait lasts up to half a second
        waiting = asyncio.create_task(anext(second))
        await log.write(*group("a"), *group("b"), *group("c"), *group("d"))
        await stream.trained(await waiting)
        await stream.trained(await anext(second))
    await trained_once(log, *"abcd")


async def test_a_stream_that_has_ended_says_so(log: Log) -> None:
    """It was an error of the client without a text."""
    async with GroupStream(log.settings) as stream:
        await log.write(*group("a"), *group("b"))
        batches = stream.batches()
        batch = await anext(batches)
        heard = asyncio.ensure_future(stream.trained(batch))
    assert (await heard).groups == 2, "it was told before"
    for ask in (lambda: stream.trained(batch), stream.batches):
        with pytest.raises(NotOpen, match="has ended") as told:
            ask()
        assert "goes on from what is on the log" in told.value.hint
    with pytest.raises(NotOpen, match="has ended"):
        await anext(batches)
    assert stream.history.current == Policy(0, 0), "what it knew stays"


async def test_an_iterator_that_somebody_was_cancelled_over_goes_on(log: Log) -> None:
    async with GroupStream(log.settings) as stream:
        first = stream.batches()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(anext(first), 0.7)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(anext(stream.batches()), 0.01)
        await log.write(*group("a"), *group("b"))
        await stream.trained(await anext(first))
    await trained_once(log, "a", "b")


@pytest.mark.parametrize(
    "told",
    [
        {"publish": Path("w")},
        {"publish": ""},
        {"publish": "w", "digest": b"d"},
        {"checkpoint": "\udcff"},
        {"checkpoint": "c", "checkpoint_digest": 7},
    ],
)
async def test_what_no_event_can_say_is_refused_and_the_batch_stays_lent(log: Log, told: dict[str, Any]) -> None:
    async with GroupStream(log.settings) as stream:
        await log.write(*group("a"), *group("b"))
        batch = await anext(stream.batches())
        with pytest.raises(SettingsError, match="isn't a text"):
            await stream.trained(batch, **told)
        await stream.trained(batch, publish="w")
    await trained_once(log, "a", "b")
