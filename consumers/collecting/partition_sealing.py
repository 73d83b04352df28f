"""Where one partition can be sealed, and its seal (design/log#seals).

Guarantees: below the seal every record counts for good, by final events that a resume can't make void any more; what
may still count otherwise holds it. Leaves out: writing it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from rolloutlog.consumers.audit.partition_reading import PartitionReading
from rolloutlog.consumers.audit.sealing import counts_of, move_seeds, seal_of
from rolloutlog.consumers.audit.small_topics import SmallTopics
from rolloutlog.consumers.audit.violations import Violation
from rolloutlog.consumers.collecting.need import Need, lowest
from rolloutlog.contract.events.audit_sealed import AuditSeal
from rolloutlog.contract.events.watermarks import Watermarks
from rolloutlog.contract.topics import Topic


@dataclass(slots=True)
class PartitionSealing:
    """A partition, what its records are needed for, the seal that was there `before`, and the one that there is now."""

    reading: PartitionReading
    needs: list[Need]
    before: AuditSeal | None
    seal: AuditSeal | None = field(init=False)

    def __post_init__(self) -> None:
        """Nothing more is sealed yet."""
        self.seal = self.before

    @property
    def is_new(self) -> bool:
        """True where the seal says more than the one before."""
        return self.seal is not None and self.seal != self.before

    @property
    def seeds(self) -> int:
        """Below which seeds needn't be compared any more."""
        return max(self._sealable(Topic.SEEDS), sealed_to(self.before, Topic.SEEDS))

    async def run(self, small: SmallTopics, marks: Watermarks, repeated: Iterable[Violation]) -> None:
        """Count what can be sealed; `repeated` are seeds of which one lies below `seeds`. Raises IndexMismatch."""
        while (at := self._sealable(Topic.ROLLOUTS)) > sealed_to(self.before, Topic.ROLLOUTS):
            ledger = await self.reading.begin(small, self.before, at)
            await self.reading.fold(ledger)
            if ledger.low >= at:
                ledger.finish()
                self.seal = seal_of(ledger, self.before, marks, self.seeds, repeated)
                return
            self.needs.append(Need(Topic.ROLLOUTS, ledger.low, "a record that may still count otherwise"))
        if self.before is not None:
            self.seal = move_seeds(self.before, self.seeds, repeated)

    @property
    def counted(self) -> int:
        """Records that are sealed."""
        return 0 if self.seal is None else counts_of(self.seal).produced

    def hold_violations(self) -> None:
        """Seal nothing more where something is wrong below: what is there is the evidence."""
        before = () if self.before is None else self.before.violations
        if self.seal is not None and len(self.seal.violations) > len(before):
            why = f"{len(self.seal.violations) - len(before)} violations that `rolloutlog audit` tells"
            self.seal = self.before
            self.needs += [Need(topic, sealed_to(self.before, topic), why) for topic in (Topic.ROLLOUTS, Topic.SEEDS)]

    def kept(self, topic: Topic) -> Need:
        """What holds a topic, once the seal is written."""
        needs = [*self.needs, Need(topic, self._end(topic), "what comes to its end now")]
        if topic is not Topic.ROLLOUT_INDEX or self.seal is None:
            needs.append(Need(topic, sealed_to(self.seal, topic), "what isn't sealed"))
        return lowest(needs, topic)  # of equal ones the first

    def _sealable(self, topic: Topic) -> int:
        return lowest([*self.needs, Need(topic, self._end(topic), "")], topic).offset

    def _end(self, topic: Topic) -> int:
        return self.reading.known[topic, self.reading.partition].stable


def sealed_to(seal: AuditSeal | None, topic: Topic) -> int:
    """Up to where a seal speaks of a topic."""
    if seal is None:
        return 0
    return seal.rollouts if topic is Topic.ROLLOUTS else seal.seeds
