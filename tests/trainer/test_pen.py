"""The trainer's pen on a real broker, with faults on the wire (design/trainer#pen)."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest

from rolloutlog.contract.errors import BrokerUnreachable, ClientFailed, Fenced
from rolloutlog.contract.events.event import Outgoing
from rolloutlog.contract.events.group_events import GroupFinal, final_event
from rolloutlog.contract.vocabulary import DropReason
from rolloutlog.trainer.steps.step_writer import StepWriter
from rolloutlog.trainer.steps.writer_mark import WriterMark, has_written, read_marks
from tests.trainer.log import Log, now
from tests.trainer.wire_faults import MOMENTS, STEP, WireFaults, lost, silence

pytestmark = pytest.mark.broker

SHORT_MS = 1000
"""The broker looks for transactions that timed out once a second."""


def said(group: str) -> Outgoing:
    final = GroupFinal(group=group, group_size=2, timeline=0, step=1, as_of=0, reason=DropReason.SINGLE)
    return final_event(final, source="/trainer", now=now())


async def groups(log: Log) -> Counter[str]:
    return Counter(final.group for final in await log.finals())


@asynccontextmanager
async def pen(log: Log, *, patience_s: float = 30.0, timeout_ms: int = SHORT_MS) -> AsyncGenerator[StepWriter]:
    writer = StepWriter(log.connection, patience_s=patience_s, transaction_timeout_ms=timeout_ms)
    await writer.start()
    try:
        yield writer
    finally:
        await writer.close()


async def test_a_write_is_three_kinds_of_requests(log: Log, faults: WireFaults) -> None:
    """Those that the others strike at."""
    async with pen(log) as writer:
        faults.plan()
        await writer.write([said("a")])
        assert list(dict.fromkeys(faults.sent)) == STEP


@pytest.mark.parametrize(("kind", "when"), MOMENTS)
async def test_an_answer_that_is_lost_costs_nothing(log: Log, faults: WireFaults, kind: str, when: str) -> None:
    async with pen(log) as writer:
        for group in "ab":
            faults.plan(kind, when, lost)
            await writer.write([said(group)])
    assert await groups(log) == {"a": 1, "b": 1}


@pytest.mark.parametrize(("kind", "when"), MOMENTS)
async def test_a_transaction_that_timed_out_is_looked_up_and_written_again(
    log: Log, faults: WireFaults, kind: str, when: str
) -> None:
    """The wire is silent until the broker has ended the transaction, as to a process that stands still."""
    async with pen(log) as writer:
        faults.plan(kind, when, silence)
        await writer.write([said("a")])
        await writer.write([said("b")])
    assert await groups(log) == {"a": 1, "b": 1}


async def test_a_process_that_stood_still_says_of_no_rival(log: Log, faults: WireFaults) -> None:
    """It said that another trainer had started."""
    async with pen(log) as writer:
        for number, kind in enumerate(("Produce", "EndTxn")):
            faults.plan(kind, "before", lambda: asyncio.sleep(SHORT_MS / 1000 + 1.5))
            writer._try_s = 30
            await writer.write([said(f"g{number}")])
    assert await groups(log) == {"g0": 1, "g1": 1}


async def test_a_rival_that_started_before_the_commit_ends_it_with_nothing_written(
    log: Log, faults: WireFaults
) -> None:
    async with pen(log) as writer:
        await writer.write([said("before")])
        rivals = list[StepWriter]()

        async def rival() -> None:
            faults.plan()
            rivals.append(StepWriter(log.connection))
            await rivals[0].start()

        faults.plan("EndTxn", "before", rival)
        with pytest.raises(Fenced, match=r"another trainer has started.*nothing of its last step was written"):
            await writer.write([said("a")])
        with pytest.raises(Fenced, match="another trainer has started"):
            await writer.write([said("b")])
        await rivals[0].write([said("c")])
        await rivals[0].close()
    assert await groups(log) == {"before": 1, "c": 1}


async def test_a_rival_that_started_after_the_commit_ends_it_after_this_write(log: Log, faults: WireFaults) -> None:
    """It said that nothing was written, with the step on the log."""
    async with pen(log) as writer:

        async def rival() -> None:
            faults.plan()
            second = StepWriter(log.connection)
            await second.start()
            await second.close()
            await lost()

        faults.plan("EndTxn", "after", rival)
        await writer.write([said("a")])
        with pytest.raises(Fenced, match=r"its last step was written before"):
            await writer.write([said("b")])
    assert await groups(log) == {"a": 1}


async def test_of_four_that_start_at_once_one_remains(log: Log) -> None:
    """However they fence each other, no write of theirs is there twice, and none that failed."""
    told = Counter[str]()

    async def fight(name: str) -> None:
        writer = StepWriter(log.connection)
        try:
            await writer.start()
            for number in range(5):
                await writer.write([said(f"{name}{number}")])
                told[f"{name}{number}"] += 1
        finally:
            await writer.close()

    outcomes = await asyncio.gather(*map(fight, "abcd"), return_exceptions=True)
    assert all(outcome is None or isinstance(outcome, Fenced) for outcome in outcomes), outcomes
    assert outcomes.count(None) >= 1
    assert await groups(log) == told


async def test_without_answers_a_write_ends_in_bounded_time_and_can_be_done_again(log: Log, faults: WireFaults) -> None:
    """`trained` waited for ever without a broker."""
    async with pen(log, patience_s=1.0) as writer:
        faults.plan("Produce", "before", silence)
        started = asyncio.get_running_loop().time()
        with pytest.raises(BrokerUnreachable, match="nothing was written"):
            await writer.write([said("a")])
        assert asyncio.get_running_loop().time() - started < 20
        faults.plan()
        await writer.write([said("b")])
    assert await groups(log) == {"b": 1}


async def test_where_nobody_can_know_whether_it_is_there_the_pen_ends(log: Log, faults: WireFaults) -> None:
    async with pen(log, patience_s=0.0) as writer:
        faults.plan("EndTxn", "after", silence)
        for _ in range(2):
            with pytest.raises(ClientFailed, match="can't be known") as told:
                await writer.write([said("a")])
            assert "start again" in told.value.hint
    async with pen(log) as writer:
        await writer.write([said("b")])
    assert await groups(log) == {"a": 1, "b": 1}


async def test_a_write_that_is_cancelled_while_it_commits_is_the_last(log: Log, faults: WireFaults) -> None:
    async with pen(log) as writer:
        writing = asyncio.create_task(writer.write([said("a")]))

        async def cancel() -> None:
            writing.cancel()
            await asyncio.sleep(0)

        faults.plan("EndTxn", "before", cancel)
        with pytest.raises(asyncio.CancelledError):
            await writing
        with pytest.raises(ClientFailed, match="can't be known"):
            await writer.write([said("b")])


async def test_marks_say_which_writes_are_there(log: Log) -> None:
    async with pen(log) as first:
        await first.write([said("a")])
    async with pen(log) as second:
        await second.write([said("b")])
    marks = await read_marks(log.connection, whole=True)
    assert [(mark.life, mark.writes) for mark in marks] == [
        (first._life, 1),
        (first._life, 2),
        (second._life, 1),
        (second._life, 2),
    ]
    assert marks[-1].after == (first._life, 2)
    assert [has_written(marks, first._life, number) for number in (2, 3)] == [True, False]
    assert [has_written(marks[2:], first._life, number) for number in (2, 3)] == [True, False], "it was compacted away"


@pytest.mark.pure
def test_a_mark_that_is_gone_and_named_by_nobody_says_nothing() -> None:
    marks = [WriterMark("c", 4, ("b", 2))]
    assert has_written(marks, "a", 1) is None
    assert has_written([], "a", 1) is None
