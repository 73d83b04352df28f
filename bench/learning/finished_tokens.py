"""What became of the tokens that were sampled, by the audit's own terms (design/groups#accounting).

Guarantees: a token counts with its record, under the one term that the audit counts that under. Leaves out: tokens of
trained members that a mask left out of the loss, which the trainer's rows have.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from rolloutlog.consumers.audit.auditor import ORDER, small_topics
from rolloutlog.consumers.audit.counts import Term
from rolloutlog.consumers.audit.ledger import PartitionLedger
from rolloutlog.consumers.audit.partition_reading import PartitionReading
from rolloutlog.contract.events.event import Event
from rolloutlog.contract.record.provenance import STATUS_OF
from rolloutlog.contract.record.value import JSON, decode
from rolloutlog.contract.settings import Settings
from rolloutlog.contract.topics import Topic
from rolloutlog.contract.wire.rejection import Rejected
from rolloutlog.kafka.client.connection import connect
from rolloutlog.kafka.read.ends import ends


@dataclass(slots=True)
class TokenLedger(PartitionLedger):
    """A ledger that also sums the sampled tokens of the records that it counts."""

    sampled: dict[int, int] = field(default_factory=dict[int, int])
    """By offset, of records that aren't counted yet."""
    tokens: Counter[Term] = field(default_factory=Counter[Term])

    def fold(self, event: Event) -> None:
        """Fold one record of `rollouts`."""
        self.sampled[event.offset] = sampled_tokens(event)
        PartitionLedger.fold(self, event)

    def _count(self, offset: int, term: Term) -> None:
        self.tokens[term] += self.sampled.pop(offset, 0)
        PartitionLedger._count(self, offset, term)


def sampled_tokens(event: Event) -> int:
    """Tokens that a policy sampled into a record; 0 where its value holds none."""
    if event.headers.type not in STATUS_OF or not event.value:
        return 0
    try:
        return decode(event.value, event.headers.content_type or JSON).response_tokens
    except Rejected:
        return 0


async def finished_tokens(settings: Settings) -> dict[str, int]:
    """Sampled tokens by term, and reason where it has one; most first."""
    connection = await connect(settings)
    known = await ends(connection, ORDER)
    small, tokens = await small_topics(connection, known), Counter[str]()
    for number in range(settings.topics.partitions):
        is_live = small.policies.history.is_live
        reading = PartitionReading(connection, known, number, settings.topics.partitions, is_live)
        rejected = small.rejected[Topic.ROLLOUTS, number]
        ledger = TokenLedger(number, 0, rejected, await reading.indexed())
        await reading.fold(ledger)
        ledger.finish()
        tokens.update({", ".join(filter(None, term)): count for term, count in ledger.tokens.items() if count})
    return dict(tokens.most_common())
