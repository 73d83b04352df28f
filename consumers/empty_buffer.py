"""Saying why a member's shards emit no derived seed (design/buffer#empty).

Guarantees: one line after `AFTER_S` seconds in which no owned shard drew anything, one a minute and one at another
reason while that lasts, and one when it is over. Leaves out: drawing, which goes on by itself once there is something.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from rolloutlog.buffer.folding.tally import why_empty
from rolloutlog.buffer.shard.candidate_sampler import DrawLack
from rolloutlog.buffer.shard.shard import Shard
from rolloutlog.consumers.buffer_shard import BufferShard
from rolloutlog.contract.settings import BufferSettings
from rolloutlog.kafka.client.logged_wait import LoggedWait
from rolloutlog.kafka.loop.partition_loop import PartitionLoop

log = logging.getLogger(__name__)

AFTER_S, EVERY_S = 10.0, 1.0
WORDS = {
    DrawLack.CANDIDATE: "nothing to derive seeds from",
    DrawLack.BEHIND: "the inputs aren't read to their end",
    DrawLack.RATIO: "as many were derived as `buffer.ratio` allows",
    DrawLack.OPEN_GROUPS: "as many derived groups are open as may be",
}


class EmptyBuffer:
    """Of one member: `await EmptyBuffer(loop, settings.buffer).watch()` until it is cancelled."""

    def __init__(self, loop: PartitionLoop, settings: BufferSettings, after_s: float = AFTER_S) -> None:
        self._loop = loop
        self._derivations = [each.name for each in settings.derivations]
        self._wait = LoggedWait(log.warning, after_s=after_s)
        self._drawn = 0

    async def watch(self) -> None:
        """Look every second."""
        while self._derivations:
            self._look()
            await asyncio.sleep(EVERY_S)

    def _look(self) -> None:
        shards = shards_of(self._loop)
        lacks, drawn = lacks_of(shards), sum(shard.fold.drawn for shard in shards)
        if shards and lacks.total() == len(shards) and drawn == self._drawn:
            self._wait.goes_on(self._why(shards, lacks), kind=", ".join(sorted(lacks)))
        else:
            self._wait.over("seeds are derived")
        self._drawn = drawn

    def _why(self, shards: Sequence[Shard], lacks: Mapping[DrawLack, int]) -> str:
        said = [f"{WORDS[lack]} on {number} partitions" for lack, number in lacks.items()]
        dry = [shard.fold.numbers() for shard in shards if shard.lack is DrawLack.CANDIDATE]
        return "; ".join(said) + (f": {why_empty(dry, self._derivations)}" if dry else "")


def shards_of(loop: PartitionLoop) -> list[Shard]:
    """The shards that a member of the buffer runs now, to look at."""
    return [each.shard for each in loop.shards.values() if isinstance(each, BufferShard)]


def lacks_of(shards: Iterable[Shard]) -> Counter[DrawLack]:
    """How many of them draw nothing, by what they lack; dry ones last."""
    found = Counter(lack for shard in shards if (lack := shard.lack) is not None)
    return Counter({lack: found[lack] for lack in DrawLack if found[lack]})
