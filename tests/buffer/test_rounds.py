"""Rounds: what came to rest is restored in bulk, and is what its rows would give (design/buffer#rounds)."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from rolloutlog.buffer.derivations.protocol import AnchorPoint
from rolloutlog.buffer.folding.fold import Fold
from rolloutlog.buffer.folding.rounds import MOST_BYTES
from rolloutlog.buffer.folding.row_restoring import RowRestoring
from rolloutlog.buffer.index.packed_anchors import pack
from rolloutlog.buffer.index.rollout_row import RolloutRow
from rolloutlog.buffer.index.round_rows import (
    Drawn,
    DroppedRow,
    GroupsRow,
    Noted,
    NotesRow,
    RestingGroup,
    RoundKind,
    SourcesRow,
    WholeRound,
)
from rolloutlog.buffer.index.row_codec import decode, encode
from rolloutlog.buffer.index.rows import AnnotationRow, FinalRow, Row, StateRow
from rolloutlog.contract.policies import Policy
from rolloutlog.contract.settings import BufferSettings
from rolloutlog.contract.topics import Topic
from rolloutlog.contract.vocabulary import AnchorKind, Status
from rolloutlog.contract.wire.rejection import Rejected

DERIVATIONS: list[Any] = [
    {"name": "continue", "derive": {"type": "continue", "anchor": "tool-call", "max_anchors": None}}
]
KEEPS: list[dict[str, Any]] = [
    {},
    {"max_age": 2},
    {"env_share": 0.4},
    {"max_age": 3, "env_share": 0.5},
    {"min_reward": 0.0, "max_reward": 1.0},
]


def settings_of(keep: dict[str, Any], capacity: int = 12) -> BufferSettings:
    return BufferSettings.model_validate({"capacity": capacity, "keep": keep, "derivations": DERIVATIONS})


def record(
    offset: int, group: int, member: int, *, version: int = 0, env: str = "sums", anchors: int = 1
) -> RolloutRow:
    """The row of a completed record with so many candidates."""
    points = (AnchorPoint(AnchorKind.TOOL_CALL, 3 + 2 * turn, 10 * turn) for turn in range(anchors))
    return RolloutRow(
        offset=offset, size=10, timestamp=1, group=f"g{group}", group_size=2, needed=2, member=member, attempt=1,
        status=Status.COMPLETED, sha256=bytes(32), reward=0.5, newest=Policy(0, version), oldest=Policy(0, version),
        origin="seed", origin_offset=0, env=env, packed=pack(points),
    )  # fmt: skip


class Log:
    """An index, and the fold that writes it in transactions; `plain` folds the same rows one by one."""

    def __init__(self, settings: BufferSettings, *, least: int = 8, rows: int = 1, most_bytes: int = 1) -> None:
        self.settings, self.rows = settings, list[bytes]()
        self.knobs = least, rows, most_bytes
        self.plain = Fold.empty(0, settings)
        self.own(Fold.empty(0, settings))

    def own(self, live: Fold) -> None:
        """The fold that writes from now on."""
        self.live = live
        live.rounds.least, live.rounds.most_rows, live.rounds.most_bytes, live.rounds.ahead = *self.knobs, 2

    def commit(self, rows: list[Row]) -> None:
        """One transaction, as a shard makes it."""
        for fold in (self.live, self.plain):
            for row in rows:
                fold.apply(row)
                topic = Topic.GROUP_EVENTS if isinstance(row, FinalRow) else Topic.ROLLOUTS
                fold.passed(topic, getattr(row, "offset", 0) + 1)
        ended = self.live.forgettable()
        for fold in (self.live, self.plain):
            for row in ended:
                fold.apply(row)
            fold.groups.read_to(fold.next_offsets[Topic.ROLLOUTS])
            fold.groups.settle()
        said = [*rows, *ended, *self.live.resting((), len(rows))]
        said.append(self.live.state_row("s"))
        self.live.rounds.transaction = len(self.rows)
        for row in said:
            self.live.placed(row, len(self.rows))
            self.rows.append(encode(row))

    def restored(self) -> Fold:
        """The fold of what the newest shard row says that is read, after a compaction."""
        rows = dict(enumerate(map(decode, self.rows)))
        newest = {row.key: at for at, row in rows.items()}
        state = next(row for row in reversed(rows.values()) if isinstance(row, StateRow))
        restoring = RowRestoring(Fold.empty(0, self.settings))
        restoring.recall(state)
        for at, row in rows.items():
            if at >= state.reads and newest[row.key] == at:
                restoring.restore(row, at)
        return restoring.fold

    @property
    def state(self) -> StateRow:
        """The newest shard row."""
        row = decode(self.rows[-1])
        assert isinstance(row, StateRow)
        return row


def note(offset: int, group: int, reward: float) -> AnnotationRow:
    return AnnotationRow(offset, f"note-{offset}", f"g{group}", 2, 0, 1, True, reward)


@given(st.sampled_from(KEEPS), st.randoms(use_true_random=False), st.integers(1, 3), st.sampled_from([1, 700]))
def test_what_limits_took_away_stays_away_and_the_next_is_taken_in_the_same_order(
    keep: dict[str, Any], random: Random, rows: int, most_bytes: int
) -> None:
    """By capacity, age, environment and reward, while rounds are written; at every transaction."""
    log = Log(settings_of(keep), rows=rows, most_bytes=most_bytes)
    for _ in range(4):
        write(log, random)
        heir = log.restored()
        assert heir == log.live == log.plain
        assert heir.needed == log.live.needed
        if random.random() < 0.5:
            log.own(heir)  # it goes on, and keeps and drops the same


def write(log: Log, random: Random) -> None:
    """Some more groups of two, in transactions of any size, with late rewards between them."""
    rows, offset, group = list[Row](), log.live.next_offsets[Topic.ROLLOUTS], log.live.next_offsets[Topic.GROUP_EVENTS]
    for number in range(group, group + random.randrange(1, 9)):
        version, env = max(0, number // 4 - random.randrange(3)), random.choice(("sums", "maths", "code"))
        for member in (0, 1):
            rows.append(record(offset, number, member, version=version, env=env, anchors=random.randrange(1, 4)))
            offset += 1
            if random.random() < 0.3:
                rows.append(note(offset, random.randrange(number + 1), random.choice((0.0, 1.0, 2.0))))
                offset += 1
        rows.append(FinalRow(number, f"f{number}", f"g{number}", offset, None))
        if random.random() < 0.7:
            log.commit(rows)
            rows = []
    log.commit(rows)


def quiet(groups: int, **how: Any) -> Log:
    """So many ended groups, and a whole round of them."""
    log = Log(settings_of({}, capacity=10_000), **how)
    random = Random(0)
    while log.live.next_offsets[Topic.GROUP_EVENTS] < groups or log.state.round is None:
        write(log, random)
    return log


def test_a_restore_reads_the_round_and_what_comes_behind() -> None:
    log = quiet(400, least=200, rows=8, most_bytes=MOST_BYTES)
    state = log.state
    assert state.needed == 0
    assert state.round is not None
    assert state.reads == state.round.begin > 100
    rows = [decode(value) for value in log.rows[state.reads :]]
    assert sum(isinstance(row, SourcesRow) for row in rows) < 10
    assert log.restored() == log.live


def test_a_round_that_was_not_ended_is_as_good_as_none() -> None:
    """The owner died in the middle of it; the next one begins anew, and the round before is still there."""
    log = quiet(40)
    random = Random(1)
    while not log.live.rounds.is_under_way:
        write(log, random)
    whole, heir = log.state.round, log.restored()
    assert heir == log.live
    log.own(heir)
    while log.state.round == whole:
        write(log, random)
        assert log.restored() == log.live


def test_a_round_of_which_a_row_is_missing_is_told() -> None:
    log = quiet(40)
    whole, state = log.state.round, log.state
    assert whole is not None
    for gone in range(whole.begin, whole.end + 1):
        if not isinstance(decode(log.rows[gone]), SourcesRow | GroupsRow):
            continue
        restoring = RowRestoring(Fold.empty(0, log.settings))
        restoring.recall(state)
        with pytest.raises(Rejected, match="of the round isn't there"):
            for at in range(state.reads, len(log.rows)):
                if at != gone:
                    restoring.restore(decode(log.rows[at]), at)


def test_no_row_of_a_round_is_above_what_any_topic_takes() -> None:
    log = quiet(600, least=100, rows=1000, most_bytes=MOST_BYTES)
    sizes = [len(value) for value in log.rows if isinstance(decode(value), SourcesRow | GroupsRow | DroppedRow)]
    assert MOST_BYTES // 2 < max(sizes) < 40 * 1024


def test_a_source_of_which_much_was_told_has_its_notes_in_rows_of_their_own() -> None:
    """So it takes part in rounds like all others, wherever it is among them."""
    log = Log(settings_of({}, capacity=50), most_bytes=MOST_BYTES)
    log.commit([record(offset, offset, 0) for offset in range(3)])
    for number in range(2000):
        group = 2 - number // 1000
        log.commit([AnnotationRow(3 + number, f"{number:032}", f"g{group}", 2, 0, 1, True, number % 2 / 2)])
    state, rows = log.state, [decode(value) for value in log.rows]
    assert state.round is not None
    assert state.round.place > 2000, "of now"
    of_now = rows[state.round.begin : state.round.end + 1]
    assert {row.place for row in of_now if isinstance(row, NotesRow)} == {1, 2}
    assert max(len(value) for value in log.rows) < 40 * 1024
    assert log.restored() == log.live == log.plain


def test_notes_of_another_source_than_the_one_before_them_are_rejected() -> None:
    log = quiet(20)
    restoring = RowRestoring(Fold.empty(0, log.settings))
    restoring.recall(log.state)
    with pytest.raises(Rejected, match="notes of another source"):
        for at in range(log.state.reads, len(log.rows)):
            row = decode(log.rows[at])
            restoring.restore(row, at)
            if isinstance(row, SourcesRow) and row.flags and row.place is None:
                place = int.from_bytes(row.offsets[-8:], "little", signed=True)
                restoring.restore(NotesRow(row.side, row.number + 1, place + 1, ["note"]), at)


def test_a_row_of_sources_that_share_nothing_is_no_larger() -> None:
    log = Log(settings_of({}, capacity=10_000), least=100, rows=1000, most_bytes=MOST_BYTES)
    log.commit([record(offset, offset, 0, env="e" * 200 + str(offset)) for offset in range(300)])
    log.commit([])
    sizes = [len(value) for value in log.rows if isinstance(decode(value), SourcesRow)]
    assert len(sizes) > 2
    assert max(sizes) <= 40 * 1024
    assert log.restored() == log.live


GROUPS = GroupsRow(0, 0, [RestingGroup("g", 0, None, b"\x01")])
SOURCES = SourcesRow(
    0, 0, bytes(8), bytes(8), bytes(8), bytes(1), bytes(2), bytes(2), bytes(4), b"", ["g"], [], [], [], [], 1
)


@pytest.mark.parametrize(
    "row",
    [GROUPS, SOURCES, replace(SOURCES, rows=b""), replace(SOURCES, offsets=bytes(7)), replace(SOURCES, tails=b"more")],
)
def test_what_no_shard_writes_is_rejected(row: RoundKind) -> None:
    restoring = RowRestoring(Fold.empty(0, settings_of({})))
    restoring.recall(replace(Log(settings_of({})).live.state_row("s"), round=WholeRound(0, 9, 1, 0)))
    with pytest.raises(Rejected, match="not a round of this version"):
        restoring.restore(row, 0)


@pytest.mark.parametrize(
    "forge",
    [
        lambda row: replace(row, flags=b"\x01" * len(row.flags)),
        lambda row: replace(row, flags=b"\x10" * len(row.flags)),
        lambda row: replace(row, offsets=(1 << 40).to_bytes(8, "little") * (len(row.offsets) // 8)),
        lambda row: replace(row, told=[Noted(len(row.flags), 0.5, ["note"])]),
        lambda row: replace(row, told=[Noted(0, 0.5, ["note"])] * 2),
        lambda row: replace(row, drawn=[Drawn(len(row.flags), 1, [])]),
        lambda row: replace(row, drawn=[Drawn(0, 0, [])]),
        lambda row: replace(row, drawn=[Drawn(0, 9, [])]),
        lambda row: replace(row, drawn=[Drawn(0, 1, [(1, 1, False)])]),
        lambda row: replace(row, seeds=[(len(row.flags), 0)]),
        lambda row: replace(row, likes=[(like, [count + 1]) for like, (count,) in row.likes]),
        lambda row: replace(row, likes=[(like, [0]) for like, _ in row.likes]),
        lambda row: replace(row, likes=[(replace(like, group_size=1, needed=1), counts) for like, counts in row.likes]),
        lambda row: replace(row, lengths=(1).to_bytes(4, "little") + row.lengths[4:], tails=row.tails[:1]),
        lambda row: replace(row, tails=bytes(len(row.tails))),
        lambda row: replace(row, rows=(-2).to_bytes(8, "little", signed=True) * (len(row.rows) // 8)),
    ],
    ids=[
        *("gone", "flag", "place", "told", "told-twice", "drawn", "none-left", "more-left", "candidate", "seed"),
        *("count", "no-count", "member", "length", "tail", "row"),
    ],
)
def test_what_fits_no_source_of_a_round_is_rejected(forge: Callable[[SourcesRow], SourcesRow]) -> None:
    """A damaged index is told by its place, and by no error of another kind later."""
    log = quiet(20)
    state, restoring = log.state, RowRestoring(Fold.empty(0, log.settings))
    restoring.recall(state)
    with pytest.raises(Rejected, match="not a round of this version"):
        for at in range(state.reads, len(log.rows)):
            row = decode(log.rows[at])
            if isinstance(row, SourcesRow) and row.flags:
                row = forge(row)
            restoring.restore(row, at)


def test_sources_of_a_round_that_are_told_twice_are_rejected() -> None:
    log = quiet(20)
    restoring = RowRestoring(Fold.empty(0, log.settings))
    restoring.recall(log.state)
    with pytest.raises(Rejected, match="sources out of their place"):
        for at in range(log.state.reads, len(log.rows)):
            row = decode(log.rows[at])
            restoring.restore(row, at)
            if isinstance(row, SourcesRow) and row.flags and row.place is None:
                restoring.restore(replace(row, number=row.number + 1), at)
