"""What is told of a rollout before its record comes holds when it comes, however often the shard was restored meanwhile
(design/buffer#fold)."""

from __future__ import annotations

from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from rolloutlog.buffer.shard.shard import Shard
from rolloutlog.contract.events.event import Outgoing
from rolloutlog.contract.topics import Topic
from tests.buffer.events_by_hand import annotated, cancelled, fresh, rollout
from tests.buffer.partition_log import Owner, PartitionLog, group_id, recall, settings_of

SETTINGS = settings_of(buffer={"ratio": 0.0})
FAR = 4
"""Rows behind which a group without a source is carried."""


class Said(NamedTuple):
    """A record of an attempt, or an annotation of it; other groups speak too."""

    what: str
    member: int
    attempt: int
    reward: float

    def made(self, number: int) -> Outgoing:
        match self.what:
            case "record":
                return rollout("a", self.member, self.attempt, reward=None if self.reward < 0 else self.reward, turns=1)
            case "annotation":
                return annotated("a", self.member, self.attempt, reward=self.reward)
            case "other fact":
                return annotated("a", self.member, self.attempt, note=self.reward)
            case "cancel":
                return cancelled("a", [self.member], "x")
            case _:
                return fresh(f"other-{number}")


said = st.lists(
    st.builds(
        Said,
        st.sampled_from(["record", "annotation", "annotation", "other fact", "cancel", "else"]),
        st.integers(0, 1),
        st.integers(1, 2),
        st.sampled_from([-1.0, 0.0, 0.5, 1.0]),
    ),
    max_size=14,
)


def owner_of(log: PartitionLog) -> Owner:
    """A new owner, from what log compaction left of the rows."""
    newest = {row.key: offset for offset, row in enumerate(log.rows)}
    owner = Owner(PartitionLog(log.settings))
    owner.log, owner.shard = log, Shard.empty(0, log.settings)
    owner.shard.fold.places.far = FAR
    recall(owner.shard, {offset: row for offset, row in enumerate(log.rows) if newest[row.key] == offset})
    owner.positions = dict(owner.shard.fold.next_offsets)
    return owner


def rewards(told: list[Said]) -> dict[int, float | None]:
    """The reward of each member's standing record, by the rule: the newest that was told of its attempt, whenever; the
    same words count once."""
    found: dict[int, float | None] = {}
    for member in (0, 1):
        records: dict[int, float] = {}
        for each in told:
            if (each.what, each.member) == ("record", member):
                records.setdefault(each.attempt, each.reward)
        if records:
            attempt = max(records)
            notes = [e.reward for e in told if e.what == "annotation" and (e.member, e.attempt) == (member, attempt)]
            newest = [*dict.fromkeys(notes)][-1:]
            own = records[attempt]
            found[member] = newest[0] if newest else None if own < 0 else own
    return found


@given(said, st.lists(st.booleans(), min_size=14, max_size=14))
def test_a_shard_restored_at_any_cut_knows_what_was_told_before_between_and_after(
    told: list[Said], restored: list[bool]
) -> None:
    log = PartitionLog(SETTINGS)
    owner = owner_of(log)
    for number, each in enumerate(told):
        log.append(each.made(number))
        for topic in (Topic.ROLLOUTS, Topic.SEEDS):
            owner.read(topic)
        owner.flush()
        heir = owner_of(log)
        owner.shard.fold.groups.settle()
        assert heir.shard.fold == owner.shard.fold, f"restored behind {number}"
        owner = heir if restored[number] else owner
        opened = owner.shard.fold.groups.opened.get(group_id("a"))
        expected = rewards(told[: number + 1])
        if opened is None:
            assert not expected
            continue
        members = opened.group.members
        known = {index: member.reward for index, member in members.items() if member.record is not None}
        assert known == expected
        sources = owner.shard.fold.pool.sources.values()
        live = {source.packed.row.member: source.reward for source in sources if not source.dead}
        assert live == expected
