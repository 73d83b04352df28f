"""The index of a shard that is full and goes on: rows of trained groups in transactions, with the rounds between them.

Guarantees: what comes to rest, what is forgotten, and the shard row behind each transaction are a shard's own
(`rolloutlog.buffer.shard.shard`); as many sources leave as come. Leaves out: events, seeds, the broker, and its
compaction, so nothing that a restore would read is missing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from bench.index_rows import SIZE
from rolloutlog.buffer.folding.fold import Fold
from rolloutlog.buffer.index.row_codec import encode
from rolloutlog.buffer.index.rows import FinalRow, Row, StateRow
from rolloutlog.contract.ids import id_of
from rolloutlog.contract.settings import BufferSettings
from rolloutlog.contract.topics import Topic

GROUPS = 16
"""In a transaction."""
ROUNDS = 2
"""After so many that began when it was full, one is like all others."""


class Cut(NamedTuple):
    """An index up to some transaction: its rows from 0 on, and the last of them."""

    rows: list[bytes]
    state: StateRow


class RunningIndex:
    """`records` makes the rows of a group, from an offset on."""

    def __init__(self, settings: BufferSettings, records: Callable[[str, int], Sequence[Row]]) -> None:
        self.live, self.rows, self._records, self._groups = Fold.empty(0, settings), list[bytes](), records, 0
        self.live.rounds.least, self.live.rounds.most_rows = 0, 1  # as where a transaction is a small part of all

    def before_a_round_ends(self) -> Cut:
        """Where a restore reads most: a round is all but whole, and the one before is the newest."""
        while not self.live.pool.evicted:
            self._write()
        cut = self._before_the_newest_changes()
        for _ in range(ROUNDS):
            cut = self._before_the_newest_changes()
        return Cut(self.rows[: cut[0]], cut[1])

    def _before_the_newest_changes(self) -> tuple[int, StateRow]:
        """How many rows there are behind the last shard row that names the same newest round as the next one, and that
        row."""
        state, end = self._write(), len(self.rows)
        while (after := self._write()).round == state.round:
            state, end = after, len(self.rows)
        return end, state

    def _write(self) -> StateRow:
        """One transaction."""
        fold, rows = self.live, list[Row]()
        for number in range(self._groups, self._groups + GROUPS):
            group, end = id_of("running", number), (number + 1) * SIZE
            rows += self._records(group, number * SIZE)
            rows.append(FinalRow(number, id_of(group, "final"), group, end, None))
        self._groups += GROUPS
        for row in rows:
            fold.apply(row)
        for topic, end in ((Topic.ROLLOUTS, self._groups * SIZE), (Topic.GROUP_EVENTS, self._groups)):
            fold.passed(topic, end)
        ended = fold.forgettable()
        for row in ended:
            fold.apply(row)
        rows += ended
        if (chunk := fold.places.chunks.due(0, 0, -1)) is not None:
            rows.append(chunk)
        rows += fold.resting((), len(rows))
        rows.append(state := fold.state_row("digest"))
        fold.rounds.transaction = len(self.rows)
        for row in rows:
            fold.placed(row, len(self.rows))
            self.rows.append(encode(row))
        return state
