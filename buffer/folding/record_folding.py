"""How rows of `rollouts` change a shard: records, late rewards and cancellations (design/buffer#fold, #pool).

Guarantees: every good record takes the places of its candidates, and lower attempts of its member don't stand any more,
in whatever order they come. Leaves out: seeds, final events and the end of groups (`fold`).
"""

from __future__ import annotations

from rolloutlog.buffer.folding.shard_state import ShardState
from rolloutlog.buffer.group.closed_group import ClosedGroup
from rolloutlog.buffer.group.group import Disposition, Group
from rolloutlog.buffer.group.member import Member, Record
from rolloutlog.buffer.group.open_group import REFUSED, OpenGroup, shape_of
from rolloutlog.buffer.index.rollout_row import RolloutRow
from rolloutlog.buffer.index.rows import AnnotationRow, CancelRow, GroupRow
from rolloutlog.buffer.index.skip import Skip
from rolloutlog.contract.topics import Topic
from rolloutlog.contract.vocabulary import Status


def fold_record(state: ShardState, row: RolloutRow) -> Disposition:
    """A record of any status, or what is left of one that was rejected. Raises Rejected where it is at odds with its
    group."""
    entry = state.groups.find(row.group)
    if row.dead or (state.groups.is_late(row.group, row.offset) if entry is None else entry.is_late(row.offset)):
        return _dead(state, row)
    if row.rejected:
        return _rejected(state, row)
    return _rollout(state, row, state.groups.open(row.group) if entry is None else entry)


def _rollout(state: ShardState, row: RolloutRow, entry: OpenGroup | ClosedGroup) -> Disposition:
    group = membership_of(entry)
    disposition = group.admit(shape_of(row), row.member, _record_of(row, state.partition))
    if disposition is Disposition.DUPLICATE:
        return disposition
    if entry.kin.recorded is None:
        entry.kin.learn(row)
    member = group.members[row.member]
    if member.others:
        state.pool.supersede(row.group, row.member, row.attempt)
    _add_source(state, row, member, dead=disposition is Disposition.SUPERSEDED)
    return disposition


def _rejected(state: ShardState, row: RolloutRow) -> Disposition:
    entry = state.groups.find(row.group) or OpenGroup(Group(row.group), state.partition)
    if not membership_of(entry).reject(shape_of(row), row.member, row.attempt):
        return Disposition.DUPLICATE
    entry.kin.learn(row)
    state.pool.supersede(row.group, row.member, row.attempt)
    if isinstance(entry, OpenGroup):
        state.groups.opened[row.group] = entry
    return Disposition.TAKEN


def _dead(state: ShardState, row: RolloutRow) -> Disposition:
    """A record that says nothing of its group; lower attempts don't stand any more, as with every record."""
    entry = state.groups.find(row.group)
    if entry is not None and entry.agrees_on(shape_of(row)):
        state.pool.supersede(row.group, row.member, row.attempt)
    if not row.rejected:
        _add_source(state, row, None, dead=True)
    return Disposition.TAKEN


def _add_source(state: ShardState, row: RolloutRow, member: Member | None, *, dead: bool) -> None:
    """Take the places of a record's candidates; None where it isn't the member's."""
    notes = None if member is None else member.notes_of(row.attempt)
    if notes is None:
        state.pool.add(row, state.census.skipped, heeded=member is not None, dead=dead)
        return
    reward = notes.facts.get("reward", row.reward)
    state.pool.add(row, state.census.skipped, dead=dead, reward=reward, notes=frozenset(notes.ids))


def fold_annotation(state: ShardState, row: AnnotationRow) -> Disposition:
    """What was told late of a record, to its group and to the pool. Raises Rejected."""
    entry = state.groups.entry(row.group)
    if isinstance(entry, ClosedGroup) and entry.is_late(row.offset):
        disposition = of_forgotten(row)
    else:
        facts = {"reward": row.reward} if row.says_reward else {}
        disposition = membership_of(entry).annotate(row.group_size, row.member, row.attempt, row.id, facts)
    if row.says_reward and state.pool.annotate(row):
        return Disposition.TAKEN
    return Disposition.DUPLICATE if disposition is Disposition.SUPERSEDED else disposition


def fold_cancel(state: ShardState, row: CancelRow) -> Disposition:
    """Members of which no record comes. Raises Rejected."""
    entry = state.groups.entry(row.group)
    if isinstance(entry, ClosedGroup) and entry.is_late(row.offset):
        disposition = Disposition.DUPLICATE
    else:
        disposition = membership_of(entry).cancel(row.group_size, row.members)
    if row.reason == REFUSED and not entry.refused:
        entry.refused = True
        refuse(state, entry)
        return Disposition.TAKEN
    return disposition


def refuse(state: ShardState, entry: OpenGroup | ClosedGroup) -> None:
    """The environment couldn't stand at that anchor: its candidate is drawn no more (design/buffer#refusals)."""
    if entry.mark is not None and entry.refused:
        state.census.skipped[entry.mark.derivation, Skip.REFUSED] += 1
        mark_refused(state, entry)


def mark_refused(state: ShardState, entry: OpenGroup | ClosedGroup) -> None:
    """The same without counting it: where it was counted before."""
    if entry.mark is not None and entry.refused:
        state.pool.mark(entry.mark._replace(refused=True), state.next_offsets[Topic.ROLLOUTS])


def of_forgotten(row: GroupRow) -> Disposition:
    """It changes nothing, and has a row where it would count at a cut below the group's end (design/buffer#offline)."""
    counts = isinstance(row, AnnotationRow) and row.says_reward
    return Disposition.TAKEN if counts else Disposition.DUPLICATE


def _record_of(row: RolloutRow, partition: int) -> Record:
    """What its group keeps of a record: nobody goes on with a completed one, or asks for its size and tokens."""
    goes_on = row.status is Status.ABORTED
    return Record(
        row.attempt,
        row.status,
        partition,
        row.offset,
        row.size if goes_on else 0,
        row.namespace,
        row.digest,
        reward=row.reward,
        sampled=row.sampled if goes_on else 0,
    )


def membership_of(entry: OpenGroup | ClosedGroup) -> Group:
    """The group that an event which isn't late is folded into."""
    if entry.group is None:
        raise ValueError("an event of a group that ended before it, though its input was read past it")
    return entry.group
