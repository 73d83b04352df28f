"""The audit's ledger and the shard's fold agree, whatever lies on the log: both fold the same `Group`."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from rolloutlog.buffer.group.group import Group
from rolloutlog.buffer.index.rollout_row import RolloutRow
from rolloutlog.consumers.audit.indexed_offsets import IndexedOffsets
from rolloutlog.consumers.audit.ledger import PartitionLedger
from rolloutlog.contract.events.dead_letters import rejected_place
from rolloutlog.contract.events.event import Outgoing
from rolloutlog.contract.events.group_events import MemberExpired, read_group_event
from rolloutlog.contract.ids import ID_BYTES
from rolloutlog.contract.topics import Topic
from rolloutlog.contract.vocabulary import RunKind, Status
from tests.buffer.events_by_hand import cancelled, expired, final, forged, rollout
from tests.buffer.partition_log import Owner, PartitionLog, restored, settings_of

SETTINGS = settings_of()
members, attempts = st.integers(0, 1), st.integers(1, 3)
records = st.builds(
    rollout,
    st.sampled_from("ab"),
    members,
    attempts,
    status=st.sampled_from(Status),
    reward=st.sampled_from([0.0, 1.0]),
    kind=st.sampled_from([RunKind.TRAIN, RunKind.TRAIN, RunKind.EVAL]),
    turns=st.just(1),
)
events = st.lists(
    records
    | records.map(forged)
    | st.builds(cancelled, st.sampled_from("ab"), members.map(lambda member: [member]))
    | st.builds(expired, st.sampled_from("ab"), members, attempts)
    | st.builds(final, st.sampled_from("ab"), as_of=st.integers(0, 12)),
    max_size=14,
)


def audited(log: PartitionLog) -> PartitionLedger:
    """The ledger of what lies on the topics, as the auditor fills it."""
    places = [rejected_place(letter) for letter in log.topics[Topic.DEAD_LETTERS]]
    rejected = frozenset(place[1].offset for place in places if place is not None and place[0] is Topic.ROLLOUTS)
    rows = [row for row in log.rows if isinstance(row, RolloutRow)]
    index = IndexedOffsets(folded=len(log.topics[Topic.ROLLOUTS]))
    for row in rows:
        index.learn(row)
    ledger = PartitionLedger(0, rejected=rejected, index=index)
    for event in log.topics[Topic.ROLLOUTS]:
        ledger.fold(event)
    for event in log.topics[Topic.GROUP_EVENTS]:
        made = read_group_event(event)
        if isinstance(made, MemberExpired):
            ledger.expire(made)
        else:
            ledger.end(made)
    for row in rows:
        ledger.found_row(row)
    ledger.finish()
    return ledger


def attempts_of(group: Group) -> dict[int, Any]:
    """By member; of a digest so much as the audit keeps."""
    return {
        index: {attempt: (digest[: 2 * ID_BYTES], status) for attempt, (digest, status) in member.seen.items()}
        for index, member in group.members.items()
        if member.seen
    }


def cancelled_in(group: Group, members: set[int]) -> set[int]:
    return {index for index, member in group.members.items() if member.cancelled and index in members}


@given(events)
def test_ledger_and_fold_agree(made: list[Outgoing]) -> None:
    """On duplicates, and, while a group is open, on attempts and on whose aborted records were cancelled."""
    log = PartitionLog(SETTINGS)
    log.append(*made)
    Owner(log).settle()
    fold, ledger = restored(log), audited(log)
    assert ledger.counts.accounted == ledger.counts.produced
    lost = [violation for violation in ledger.violations if violation.kind == "no-row"]
    assert lost == [], "only duplicates have no row"
    for name, account in ledger.groups.items():
        opened = fold.groups.opened[name].group if name in fold.groups.opened else Group(name)
        if opened.kind is RunKind.TRAIN and opened.members:
            assert attempts_of(account.group) == attempts_of(opened)
            gone = {record.said.member for record in account.records if record.cancelled_at is not None}
            assert gone <= cancelled_in(opened, gone)
