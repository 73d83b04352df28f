"""A trainer whose `rollouts` other processes read (design/trainer#readers)."""

from __future__ import annotations

import os
import random
import signal
from collections import Counter

import pytest

from rolloutlog.contract.ids import id_of
from rolloutlog.kafka.read.processes.reader_fetcher import ReaderFetcher
from rolloutlog.trainer.stream.group_stream import GroupStream
from tests.trainer.desk import rollout
from tests.trainer.log import Log

pytestmark = pytest.mark.broker


def is_there(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


async def test_readers_are_killed_and_each_group_is_trained_once(log: Log) -> None:
    """While groups come, and a reader dies at each step; in the end none is left."""
    trainer = log.settings.trainer.model_copy(update={"readers": 2})
    dice, pids = random.Random(7), set[int]()
    await log.bring(0)
    async with GroupStream(log.settings.model_copy(update={"trainer": trainer})) as stream:
        fetcher = stream._parts.intake.tail._fetcher
        assert isinstance(fetcher, ReaderFetcher)
        batches = stream.batches()
        for step in range(4):
            some = [rollout(m, 0, group=id_of(step, i), seed=None) for i in range(2) for m in range(2)]
            await log.write(*some)
            victim = dice.choice(fetcher.pids)
            pids |= {*fetcher.pids}
            os.kill(victim, signal.SIGKILL)
            await stream.trained(await anext(batches))
    finals = Counter(final.group for final in await log.finals())
    assert finals == Counter(id_of(step, i) for step in range(4) for i in range(2))
    assert len(pids) > 2
    assert not any(map(is_there, pids))
