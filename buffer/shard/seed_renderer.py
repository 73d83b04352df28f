"""The draws under way, from the payloads that they need to the seeds that are emitted (design/buffer#rendering).

Guarantees: seeds are made in the order of their draws; one whose payload isn't here waits, and those behind it. Leaves
out: choosing (`candidate_sampler`), making one seed (`rendering`), and what becomes of a candidate whose draw is void
(`shard`).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from rolloutlog.buffer.shard.candidate_sampler import CandidateDraw, CandidateSampler
from rolloutlog.buffer.shard.payload_cache import PayloadCache
from rolloutlog.buffer.shard.rendering import Void, emitted, rendered
from rolloutlog.buffer.sources.candidates import Candidate
from rolloutlog.contract.events.event import Outgoing
from rolloutlog.contract.handles import Handle
from rolloutlog.contract.record.trajectory import Trajectory
from rolloutlog.contract.settings import Settings


@dataclass(slots=True)
class SeedRenderer:
    """Of one partition. `supplied` are payloads by place that were read for the draws in the queue, `seeds` those that
    were made since the last commit."""

    settings: Settings
    partition: int
    source: str
    sampler: CandidateSampler
    cache: PayloadCache
    supplied: dict[int, Trajectory | Void] = field(default_factory=dict[int, "Trajectory | Void"])
    seeds: list[Outgoing] = field(default_factory=list[Outgoing])

    def missing(self) -> list[Handle]:
        """Payloads that the draws under way need and that aren't here."""
        sources = {drawn.source.offset: drawn.source for drawn in self.sampler.queue}
        gone = [source for at, source in sources.items() if at not in self.cache and at not in self.supplied]
        return sorted(source.row.handle(self.partition) for source in gone)

    def supply(self, handle: Handle, payload: Trajectory | Void) -> None:
        """A payload that was missing, or why it can't be had."""
        self.supplied[handle.place] = payload

    def render(self, now: int) -> list[tuple[CandidateDraw, Void]]:
        """Make seeds of the draws whose payloads are here, up to one that is void: that one, and all in the queue whose
        payload can't be had either; none otherwise."""
        while self.sampler.queue:
            drawn = self.sampler.queue[0]
            payload = self._payload(drawn)
            if payload is None:
                return []
            made = self._rendered(drawn, payload, now)
            if isinstance(made, Void):
                return self._all_void(drawn, made)
            self.seeds.append(made)
            self.sampler.mark_emitted(drawn)
        self.supplied.clear()
        return []

    def _all_void(self, drawn: CandidateDraw, why: Void) -> list[tuple[CandidateDraw, Void]]:
        void = {drawn.key: (drawn, why)}
        for other in self.sampler.queue:
            if isinstance(payload := self._payload(other), Void):
                void.setdefault(other.key, (other, payload))
        return [*void.values()]

    def _payload(self, drawn: CandidateDraw) -> Trajectory | Void | None:
        offset = drawn.source.offset
        return self.supplied.get(offset) or self.cache.get(offset)

    def _rendered(self, drawn: CandidateDraw, payload: Trajectory | Void, now: int) -> Outgoing | Void:
        if isinstance(payload, Void):
            return payload
        known = drawn.candidate
        candidate = Candidate(known.offset, known.derivation, known.point, drawn.earlier)
        seed = rendered(drawn.source.facts, candidate, payload, drawn.draw, self.settings, self.partition)
        if isinstance(seed, Void):
            return seed
        return emitted(seed, self.settings, partition=self.partition, source=self.source, now=now)
