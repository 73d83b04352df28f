"""Groups of 8 as events in memory, and a trainer's pure parts that read them.

Guarantees: records are what a producer writes, each with rewards and tokens of its own; what reads them is what a
`GroupStream` is made of. Leaves out: Kafka.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from bench.record import NOW, SOURCE, rollout
from rolloutlog.contract.events.event import Event, Outgoing
from rolloutlog.contract.ids import id_of
from rolloutlog.contract.partitions import partition_of
from rolloutlog.contract.policies import History, Policy
from rolloutlog.contract.settings import TrainerSettings
from rolloutlog.contract.topics import Topic
from rolloutlog.contract.wire.headers import Headers
from rolloutlog.kafka.loop.collection import SeldomCollected
from rolloutlog.producers.checked_record import checked_rollout
from rolloutlog.trainer.dispatch.decision import DispatchPolicy
from rolloutlog.trainer.dispatch.order import order_of
from rolloutlog.trainer.dispatch.sampler import Sampler
from rolloutlog.trainer.groups.announced import announced
from rolloutlog.trainer.groups.assembly import Assembly
from rolloutlog.trainer.groups.rollout_facts import arrived

SIZE, PARTITIONS, STEP = 8, 6, 43


def records(group: str, members: Iterable[int]) -> list[Outgoing]:
    """Records of those members, as a worker writes them."""
    return [checked_rollout(rollout(group, m, float(m)), source=SOURCE, now=NOW) for m in members]


def events_of(outgoing: Iterable[Outgoing], first: int = 0) -> list[Event]:
    """The same as they are read, headers yet to be looked at; offsets rise from the first."""
    return [
        Event(Topic.ROLLOUTS, partition_of(out.key.decode(), PARTITIONS), offset, NOW, out.key, headers, out.value)
        for offset, out in enumerate(outgoing, first)
        if (headers := Headers(out.headers))
    ]


def likenesses(one: Outgoing, groups: int, members: int) -> Iterator[Event]:
    """Events of as many groups, each of which lacks members: one record's headers under other names."""
    known = dict(one.headers)
    for number in range(groups):
        group, offset = id_of("open", number), number * members
        for member in range(members):
            own = {
                "ce_group": group, "ce_member": str(member), "ce_id": f"{group}.{member}.1",
                "ce_rollout": f"{group}.{member}", "ce_subject": f"{group}.{member}",
                "ce_digest": 2 * id_of(offset, member), "ce_reward": repr(member / 7),
                "ce_originseed": id_of("seed", number), "ce_originoffset": str(number),
            }  # fmt: skip
            headers = Headers((known | {name: text.encode() for name, text in own.items()}).items())
            place = partition_of(group, PARTITIONS)
            yield Event(
                Topic.ROLLOUTS, place, offset + member, NOW + offset, group.encode(), headers, one.value
            )  # fmt: skip


def history() -> History:
    """A trainer that has published 50 versions."""
    known = History()
    known.start(0, None, 0)
    for version in range(50):
        known.publish(Policy(0, version))
    return known


@dataclass
class Reader:
    """The pure parts of a stream, fed by hand."""

    settings: TrainerSettings = field(default_factory=TrainerSettings)
    assemblies: dict[int, Assembly] = field(default_factory=lambda: {n: Assembly(n) for n in range(PARTITIONS)})

    seldom: SeldomCollected = field(default_factory=SeldomCollected)

    def __post_init__(self) -> None:
        self.sampler = Sampler(self.assemblies, DispatchPolicy(self.settings, history()), order_of(self.settings))

    def fold(self, events: Iterable[Event], *, keep: bool = True) -> None:
        """Take the events of a poll in by their headers, and then settle what they changed."""
        changed = set[tuple[int, str]]()
        with self.seldom:
            for event in events:
                assembly = self.assemblies[event.partition]
                fact = announced(event, PARTITIONS)
                if assembly.wants(event) and (pending := assembly.fold(event, fact, keep_payload=keep)) is not None:
                    changed.add((event.partition, pending.id))
            for partition, group in sorted(changed):
                self.sampler.settle(partition, group, STEP)

    def read_values(self) -> None:
        """Read all values that weren't."""
        for assembly in self.assemblies.values():
            for pending in assembly.groups.values():
                for fact in [*pending.unread.values()]:
                    if fact.event is not None:
                        found = arrived(fact.event)
                        pending.confirm(found.rollout, found.record, found.payload)

    def draw(self, size: int) -> int:
        """Draw batch after batch; how many groups."""
        drawn = 0
        with self.seldom:
            while picks := self.sampler.pick(size, STEP):
                self.sampler.take(picks)
                drawn += len(picks)
        return drawn
