"""What a resume loses elsewhere, and doesn't here: work in flight, groups that wait, a batch that nobody had, and room
that a dropped group holds for ever (design/trainer#watermarks)."""

from __future__ import annotations

from collections import Counter

import pytest

from rolloutlog.contract.ids import id_of
from rolloutlog.contract.settings import Settings
from rolloutlog.contract.vocabulary import DropReason
from rolloutlog.trainer.stream.group_stream import GroupStream
from rolloutlog.trainer.stream.starting import Start
from tests.producers.log import emit, until
from tests.trainer.desk import rollout
from tests.trainer.log import Log
from tests.trainer.test_skipping import asked
from tests.trainer.test_starts import made, marks_of, steps
from tests.trainer.test_stream import drained, group, names

pytestmark = pytest.mark.broker
RESUME = Start(resume="checkpoint")


async def trained_after(log: Log, start: Start = RESUME) -> list[str]:
    """Groups that a resumed trainer trains, in order."""
    async with GroupStream(log.settings, start) as stream:
        return [name for batch in await drained(stream) for name in names(batch)]


async def ends_of(log: Log, name: str) -> list[tuple[int, int, DropReason | None]]:
    """Timeline, step and reason of each final event of a group."""
    return [(f.timeline, f.step, f.reason) for f in await log.finals() if f.group == id_of(name)]


async def test_prompts_in_flight_at_the_checkpoint_are_trained_after_it(settings: Settings) -> None:
    """The long ones: asked for before it, sampled half or not at all by then, and complete after the crash."""
    log = await made(settings, staleness={"max_staleness": "none"})
    await emit(log.settings, asked("half"))
    await emit(log.settings, asked("longer"))
    half = [rollout(i, 0, group=id_of("half")) for i in range(2)]
    longer = [rollout(i, 0, group=id_of("longer"), origin_offset=1) for i in range(2)]
    async with GroupStream(log.settings) as stream:
        await log.write(half[0])
        await steps(stream, log, 1, checkpoint=True)
        await steps(stream, log, 2)
    await log.write(half[1], *longer)
    assert sorted(await trained_after(log)) == sorted(map(id_of, ("half", "longer", "g2")))


async def test_a_group_that_got_whole_and_trained_after_the_checkpoint_is_trained_again(settings: Settings) -> None:
    log = await made(settings, staleness={"max_staleness": "none"})
    async with GroupStream(log.settings) as stream:
        await log.write(rollout(0, 0, group=id_of("long")))
        await steps(stream, log, 1, checkpoint=True)
        await log.write(rollout(1, 0, group=id_of("long")))
        await stream.trained(await anext(stream.batches()))
    assert await trained_after(log) == [id_of("long")]
    assert await ends_of(log, "long") == [(0, 2, None), (1, 2, None)]


async def test_finished_groups_that_wait_at_the_checkpoint_are_trained_once(settings: Settings) -> None:
    log = await made(settings, staleness={"max_staleness": "none"})
    waiting = [f"w{number}" for number in range(4)]
    async with GroupStream(log.settings) as stream:
        await log.write(*(record for name in ("first", *waiting) for record in group(name)))
        first = await anext(stream.batches())
        await stream.trained(first, checkpoint="file:///1")
        await stream.trained(await anext(stream.batches()))
    after = await trained_after(log)
    assert Counter(after) == Counter(map(id_of, ("first", *waiting))) - Counter(names(first))


@pytest.mark.parametrize("ahead", [False, True])
async def test_a_batch_that_was_given_to_nobody_comes_again(settings: Settings, ahead: bool) -> None:
    """Drawn while the step of the checkpoint was told, or right after it, and trained by nobody."""
    log = await made(settings, staleness={"max_staleness": "none"})
    async with GroupStream(log.settings) as stream:
        await log.write(*group("a"), *group("b"), *group("c"))
        batches = stream.batches(ahead=ahead)
        first = await anext(batches)
        if ahead:
            await until(lambda: stream.step == 3)
        await stream.trained(first, checkpoint="file:///1")
        lost = await anext(batches)
        assert (lost.step, len(lost.groups)) == (2, 1)
    assert Counter(await trained_after(log)) == Counter(map(id_of, "abc")) - Counter(names(first))


async def test_a_group_that_was_dropped_as_stale_holds_no_resume_back(settings: Settings) -> None:
    """From the step on that closes after it the marks lie above it, and a resume doesn't read it again."""
    log = await made(settings, staleness={"max_staleness": 1, "on_expire": {"type": "drop-group"}})
    async with GroupStream(log.settings) as stream:
        await steps(stream, log, 1, 2)
        await log.write(*group("stale", 0))
        await steps(stream, log, 3, checkpoint=True)
        assert await ends_of(log, "stale") == [(0, 3, DropReason.EXPIRED)]
        mark = (await marks_of(log)).partitions[0]
        assert (mark.low, mark.first) == (8, None)
        await steps(stream, log, 4)
    async with GroupStream(log.settings, RESUME) as stream:
        assert stream._parts.intake.assemblies[0].next_offset == 8
        assert [names(batch) for batch in await drained(stream)] == [{id_of("g4")}]
    assert len(await ends_of(log, "stale")) == 1
