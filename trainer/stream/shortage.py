"""Why a batch isn't full, said in the log and by the error that ends a wait (design/trainer#starvation).

Guarantees: takes nothing away, writes nothing, and reads ends and policies alone. Leaves out: how long somebody has
waited, and the words of the error (`starvation`).
"""

from __future__ import annotations

from rolloutlog.contract.topics import Topic
from rolloutlog.trainer.dispatch.discards import Discards
from rolloutlog.trainer.dispatch.lending import Lending
from rolloutlog.trainer.stream.opening import Parts
from rolloutlog.trainer.stream.partition_ends import partition_ends
from rolloutlog.trainer.stream.starting import Start
from rolloutlog.trainer.stream.starvation import no_weights, starved


class Shortage:
    """Of the groups that a stream's parts know."""

    def __init__(self, parts: Parts, start: Start, lending: Lending) -> None:
        self._parts, self._start, self._lending = parts, start, lending

    @property
    def known(self) -> int:
        """Groups that aren't trained or dropped."""
        return sum(len(assembly.groups) for assembly in self._parts.intake.assemblies.values())

    def said(self, size: int) -> str:
        """What a batch lacks, in a line."""
        ready = self._parts.sampler.settled
        return f"{ready} of {size} groups are ready, of {self.known} that aren't trained or dropped"

    async def of_weights(self, size: int) -> Exception | None:
        """Starved where this trainer alone could end the wait, by weights that no batch which is out may still bring
        (design/trainer#doomed)."""
        sampler, lending = self._parts.sampler, self._lending
        if not self._start.timeline or lending.lent or not sampler.doomed(lending.step):
            return None
        await self._parts.intake.policies.catch_up()
        if not sampler.doomed(lending.step) or (ready := len(sampler.pick(size, lending.step))) >= size:
            return None
        return no_weights(self._parts.history, lending.step, ready=ready, wanted=size)

    async def of_groups(self, size: int, written: Discards, *, seconds: float) -> Exception:
        """Starved after so long a wait; `written` was dropped since the last batch, and said so."""
        intake, sampler = self._parts.intake, self._parts.sampler
        found = await partition_ends(self._parts)
        lags = {p: max(0, found[Topic.ROLLOUTS, p].high - await intake.position(p)) for p in intake.assemblies}
        ready = len(sampler.pick(size, self._lending.step))
        lost = Discards(written.dropped.copy(), written.expired.copy(), intake.rejections)
        lost.add(sampler.unwritten)
        return starved(intake.assemblies, lags, seconds=seconds, ready=ready, wanted=size, lost=str(lost))
