"""A trainer that is cancelled at each of its awaits in turn, on a real broker: no member is lost, no group trained
twice, and the stream goes on (design/trainer#lending)."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count

import pytest

from rolloutlog.consumers.audit.auditor import audit
from rolloutlog.contract.errors import ClientFailed
from rolloutlog.contract.ids import id_of
from rolloutlog.trainer.stream.batch_iterator import BatchIterator
from rolloutlog.trainer.stream.group_stream import GroupStream
from tests.cases.cancelling import CancelAt
from tests.producers.log import until
from tests.trainer.desk import rollout
from tests.trainer.log import Log
from tests.trainer.test_stream import with_trainer

pytestmark = [
    pytest.mark.broker,
    pytest.mark.filterwarnings("error:Unclosed AIOKafka(Consumer|Producer)"),
    pytest.mark.filterwarnings("error::pytest.PytestUnraisableExceptionWarning"),
]

SIZE = 3
READING, TELLING, NOTING = "BatchReader.next", "StepRecorder._tell", "StepRecorder._write_notes"


@dataclass
class Trainer:
    """Trains one group after the other, however often it is cancelled; a stream that ended is followed by a new one."""

    log: Log
    seen: Counter[str] = field(default_factory=Counter[str])
    numbers: count[int] = field(default_factory=count)

    @property
    def stream(self) -> GroupStream:
        return GroupStream(with_trainer(self.log.settings, batch_groups=1))

    async def group(self) -> None:
        name = id_of(next(self.numbers))
        self.seen[name] += 1
        await self.log.write(*(rollout(member, 0, group=name, size=SIZE) for member in range(SIZE)))

    async def equal(self) -> None:
        """One of equal rewards, which is dropped."""
        name = id_of(next(self.numbers))
        await self.log.write(*(rollout(member, 0, group=name, size=SIZE, reward=1.0) for member in range(SIZE)))

    async def step(self, stream: GroupStream, batches: BatchIterator) -> None:
        batch = await anext(batches)
        assert [len(group.members) for group in batch] == [SIZE], "no member is lost"
        await stream.trained(batch)

    async def drain(self) -> None:
        """Whatever is left; then each group was trained once."""
        async with self.stream as stream:
            async for batch in stream.batches(drain=True):
                assert [len(group.members) for group in batch] == [SIZE]
                await stream.trained(batch)
        trained = Counter(final.group for final in await self.log.finals() if final.reason is None)
        assert trained == self.seen
        assert (await audit(self.log.settings)).ok


@pytest.fixture
async def trainer(log: Log) -> AsyncIterator[Trainer]:
    await log.bring(0)
    made = Trainer(log)
    yield made
    await made.drain()


def turns(*, most: int) -> AsyncIterator[CancelAt]:
    """Cancel at the first await, the second, and so on, until there are no more."""

    async def each() -> AsyncIterator[CancelAt]:
        for at in range(1, most + 1):
            turn = CancelAt(at)
            yield turn
            if not turn.struck:
                return

    return each()


async def test_whoever_waits_and_tells_is_cancelled(trainer: Trainer) -> None:
    """The caller's own awaits; what reads and what writes are tasks, and go on."""
    async with trainer.stream as stream:
        batches, struck = stream.batches(), Counter[str]()
        async for turn in turns(most=20):
            await trainer.group()
            try:
                batch = await turn.run(anext(batches))
            except asyncio.CancelledError:
                batch = await anext(batches)
            assert [len(group.members) for group in batch] == [SIZE]
            telling = CancelAt(turn.at)
            try:
                report = await telling.run(stream.trained(batch))
            except asyncio.CancelledError:
                report = await stream.trained(batch)
            assert report.groups == 1
            struck += Counter(waits=turn.struck, tells=telling.struck)
        assert struck.keys() == {"waits", "tells"}


@pytest.mark.parametrize("what", [READING, TELLING, NOTING])
async def test_what_reads_or_writes_is_cancelled(trainer: Trainer, what: str) -> None:
    """As the end of a loop cancels every task: the next wait goes on with what was read; a write of which nobody can
    know whether it is on the log ends the stream, and the next one reads it."""
    stream, struck = await trainer.stream.__aenter__(), 0
    async for turn in turns(most=60):
        batches = stream.batches()
        try:
            with turn.in_tasks(what), suppress(asyncio.CancelledError):
                await trainer.group()
                await trainer.step(stream, batches)
                if what == NOTING:
                    await trainer.equal()
                    await noted(stream, batches)
            struck += turn.struck
            if await left(trainer):
                await trainer.step(stream, batches)
        except ClientFailed:
            with suppress(ClientFailed):
                await stream.__aexit__(None, None, None)
            stream = await trainer.stream.__aenter__()
    await stream.__aexit__(None, None, None)
    assert struck > 1


async def noted(stream: GroupStream, batches: BatchIterator) -> None:
    """Wait until what was dropped is on the log, which an idle wait writes."""
    waiting = asyncio.ensure_future(anext(batches))
    await until(lambda: waiting.done() or bool(stream._parts.sampler.unwritten))
    await until(lambda: waiting.done() or not stream._parts.sampler.unwritten)
    waiting.cancel()
    await waiting


async def left(trainer: Trainer) -> bool:
    """Whether a group isn't trained."""
    trained = {final.group for final in await trainer.log.finals() if final.reason is None}
    return trained < trainer.seen.keys()


@pytest.mark.parametrize(
    "every", [pytest.param(7), pytest.param(1, marks=[pytest.mark.slow, pytest.mark.timeout(600)])]
)
async def test_a_start_and_an_end_are_cancelled(trainer: Trainer, every: int) -> None:
    """Whatever is open by then is closed; the next start finds all that is on the log."""
    await trainer.group()
    for at in count(1, every):
        turn, stream = CancelAt(at), trainer.stream
        try:
            await turn.run(stream.__aenter__())
        except asyncio.CancelledError:
            continue
        await stream.__aexit__(None, None, None)
        if not turn.struck:
            break
    for at in count(1, every):
        await trainer.group()
        turn, stream = CancelAt(at), trainer.stream
        await stream.__aenter__()
        await trainer.step(stream, stream.batches())
        with suppress(asyncio.CancelledError):
            await turn.run(stream.__aexit__(None, None, None))
        if not turn.struck:
            break
