"""The audit's ledger over a long log: what an ended group leaves in memory, and how many are counted a second.

Guarantees: events are folded as the audit folds them, `group-events` beside `rollouts`, each made when it is needed.
Leaves out: the broker, whose records a reader gets some 30,000 of a second.
"""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Iterable, Iterator

from bench.report import Figure
from rolloutlog.consumers.audit.indexed_offsets import IndexedOffsets
from rolloutlog.consumers.audit.ledger import PartitionLedger
from rolloutlog.consumers.audit.seed_ids import SeedHashes
from rolloutlog.contract.events.event import Event
from rolloutlog.contract.events.group_events import GroupFinal, MemberOutcome
from rolloutlog.contract.ids import digest_of, id_of
from rolloutlog.contract.topics import Topic
from rolloutlog.contract.vocabulary import EventType, Verdict
from rolloutlog.contract.wire.headers import Headers

NAME = "audit"
MEMBERS, OPEN = 2, 64
GROUPS = 1600 * OPEN
TRACED = 800 * OPEN
"""Whole blocks of groups that are open together."""
TYPE = EventType.ROLLOUT_COMPLETED.encode()
DIGEST = digest_of(b"").encode()


def _records(groups: int) -> Iterator[tuple[int, Event]]:
    """Members of some groups at once, and the number of the group that each is the last one of, or -1."""
    offset = 0
    for first in range(0, groups, OPEN):
        for member in range(MEMBERS):
            for group in range(first, min(first + OPEN, groups)):
                yield group if member == MEMBERS - 1 else -1, _record(group, member, offset)
                offset += 1


def _record(group: int, member: int, offset: int) -> Event:
    raw = {
        "ce_type": TYPE,
        "ce_group": id_of(group).encode(),
        "ce_groupsize": b"2",
        "ce_member": str(member).encode(),
        "ce_attempt": b"1",
        "ce_digest": DIGEST,
    }
    return Event(Topic.ROLLOUTS, 0, offset, 0, raw["ce_group"], Headers(raw.items()), b"")


def _final(group: int, as_of: int) -> GroupFinal:
    first = group // OPEN * OPEN
    at = [first * MEMBERS + member * OPEN + group - first for member in range(MEMBERS)]
    outcomes = [
        MemberOutcome(member=member, attempt=1, status="completed", handle=f"0/{at[member]}/9", verdict=Verdict.FRESH)
        for member in range(MEMBERS)
    ]
    return GroupFinal(group=id_of(group), group_size=MEMBERS, timeline=0, step=1, as_of=as_of, members=outcomes)


def _audited(groups: int) -> tuple[PartitionLedger, SeedHashes]:
    """Everything that an audit keeps of a partition."""
    index, seeds = IndexedOffsets(folded=groups * MEMBERS), SeedHashes()
    for offset in range(groups * MEMBERS):
        index.rows.add(offset)
    ledger = PartitionLedger(0, index=index)
    for ended, event in _records(groups):
        ledger.fold(event)
        if ended >= 0:
            seeds.add(id_of("seed", ended))
            ledger.end(_final(ended, event.offset + 1))
    ledger.finish()
    return ledger, seeds


def measure() -> Iterable[Figure]:
    """Ended groups a second, and the bytes that each leaves."""
    start = time.perf_counter()
    ledger, _ = _audited(GROUPS)
    seconds = time.perf_counter() - start
    if ledger.counts.terms["trained"] != GROUPS * MEMBERS or ledger.violations:
        raise RuntimeError(f"the ledger counts {ledger.counts}")
    yield Figure(bench=NAME, name=f"ended groups of {MEMBERS}", value=GROUPS / seconds, unit="groups/s")
    del ledger
    tracemalloc.start()
    kept = _audited(TRACED)
    size, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    del kept
    yield Figure(bench=NAME, name="an ended group", value=size / TRACED, unit="bytes", target="<= 64")
    yield Figure(bench=NAME, name="an ended group, at most", value=peak / TRACED, unit="bytes")
