"""Rounds that no shard wrote: a row is refused when it is read, or nothing that comes of it fails later
(design/buffer#rounds)."""

from __future__ import annotations

import contextlib
from random import Random
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from rolloutlog.buffer.folding.fold import Fold
from rolloutlog.buffer.folding.row_restoring import RowRestoring
from rolloutlog.buffer.index.round_rows import NotesRow, SourcesRow
from rolloutlog.buffer.index.row_codec import CODE, SUM_BYTES, decode
from rolloutlog.buffer.index.rows import AnnotationRow, Row
from rolloutlog.buffer.sources.candidates import Mark
from rolloutlog.contract.topics import Topic
from tests.buffer.test_rounds import Log, settings_of, write


def log_of_a_round() -> Log:
    """A whole round of ended groups and of sources, of which some were drawn or refused, and one was told much."""
    log, random = Log(settings_of({}, capacity=400)), Random(3)
    write(log, random)
    place = log.live.next_offsets[Topic.ROLLOUTS]
    log.commit([AnnotationRow(place, f"{at:0999}", "g0", 2, 0, 1, True, 0.5) for at in range(9)])
    for place in [*log.live.pool.sources][::3]:
        one = log.live.pool.candidates(place)[-1]
        log.live.pool.mark(Mark(place, one.derivation, one.point.node, random.random() < 0.3), place + 1)
    before = log.state.round
    while log.state.round in (None, before):
        write(log, random)
    return log


LOG = log_of_a_round()
STATE = LOG.state
READ = range(STATE.reads, len(LOG.rows))
ROUND = [at for at in READ if LOG.rows[at][:1] != CODE]
VALUES = st.one_of(
    st.integers(-(2**63), 2**64 - 1), st.integers(-1, 9), st.none(), st.booleans(), st.text(max_size=3),
    st.binary(max_size=9), st.just([]),
)  # fmt: skip


@st.composite
def forged(draw: Any, value: Any) -> Any:
    """The same with one thing in it of another value, however deep."""
    if isinstance(value, list) and value and draw(st.integers(0, 9)):
        at = draw(st.integers(0, len(value) - 1))
        return [*value[:at], draw(forged(value[at])), *value[at + 1 :]]
    if isinstance(value, bytes) and value and draw(st.integers(0, 9)):
        at = draw(st.integers(0, len(value) - 1))
        return draw(
            st.sampled_from(
                [value[:at], value + value[at:], value[:at] + draw(st.binary(max_size=2)) + value[at + 1 :]]
            )
        )
    return draw(VALUES)


@st.composite
def forged_rounds(draw: Any) -> tuple[int, bytes]:
    """Which row, and what stands in its place; with no checksum, as rows of before."""
    at = draw(st.sampled_from(ROUND))
    row = msgspec.msgpack.decode(LOG.rows[at][1 + SUM_BYTES :])
    return at, CODE + msgspec.msgpack.encode(draw(forged(row)))


def read(at: int, value: bytes) -> Fold:
    """The fold where that stands in the place of a row. Raises ValueError."""
    restoring = RowRestoring(Fold.empty(0, LOG.settings))
    restoring.recall(STATE)
    for place in READ:
        restoring.restore(decode(value if place == at else LOG.rows[place]), place)
    return restoring.fold


def look_at_all(fold: Fold) -> list[Row]:
    """Whatever a shard does with what it has: write it down, look at it, draw it, let it leave."""
    pool = fold.pool
    said: list[Row] = [*fold.forgettable(), fold.state_row("s")]
    for source, candidate in pool:
        _ = source.facts, candidate.key
    for group in [*fold.groups.closed]:
        _ = fold.groups.closed[group].is_past_origin(0)
    fold.rounds.least = 0
    said += fold.resting()
    while len(pool.live):
        pool.take(len(pool.live) - 1)
    for offset in [*pool.sources]:
        pool.keep(offset, 0)
    return said


def test_what_stands_there_is_read() -> None:
    said = look_at_all(read(ROUND[0], LOG.rows[ROUND[0]]))
    rows = [row for row in said if isinstance(row, SourcesRow)]
    assert any(row.told for row in rows)
    assert any(row.drawn for row in rows)
    assert any(isinstance(decode(LOG.rows[at]), NotesRow) for at in ROUND)


@settings(max_examples=400)
@given(forged_rounds())
def test_a_forged_round_is_refused_when_it_is_read_or_never_fails(forged: tuple[int, bytes]) -> None:
    fold = None
    with contextlib.suppress(ValueError):  # Rejected among them
        fold = read(*forged)
    if fold is not None:
        look_at_all(fold)
