"""What screening remembers of records that are alike is what it finds in each alone (design/buffer#selection)."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from rolloutlog.buffer.derivations.protocol import AnchorPoint
from rolloutlog.buffer.index.packed_anchors import pack
from rolloutlog.buffer.index.rollout_row import RolloutRow
from rolloutlog.buffer.sources.screening import Screening, Skips
from rolloutlog.contract.settings import BufferSettings
from rolloutlog.contract.vocabulary import AnchorKind, Status

SETTINGS = [
    BufferSettings.model_validate({"derivations": derivations})
    for derivations in (
        [{"name": "re", "derive": {"type": "recheck"}}, {"name": "judge", "derive": {"type": "judge"}}],
        [
            {"name": "some", "derive": {"type": "continue", "anchor": "tool-call", "max_anchors": 2}},
            {"name": "all", "derive": {"type": "continue", "anchor": "compaction"}},
            {"name": "short", "derive": {"type": "recheck"}, "select": {"max_seed_tokens": 600}},
        ],
    )
]
KINDS = [*AnchorKind, "recheck", "judge"]
anchors = st.lists(
    st.builds(AnchorPoint, st.sampled_from(KINDS), st.sampled_from([3, 5]), st.sampled_from([90, 900])), max_size=4
)
snapshots = st.sampled_from([None, None, (), (3,)])


def row_with(points: list[AnchorPoint], kept: tuple[int, ...] | None) -> RolloutRow:
    return RolloutRow(
        offset=0, size=9, timestamp=0, group="g", group_size=1, needed=1, member=0, attempt=1,
        status=Status.COMPLETED, sha256=b"Z" * 32, env="sums", packed=pack(points), snapshots=kept,
    )  # fmt: skip


def screened(screening: Screening, row: RolloutRow) -> tuple[tuple[int, ...] | None, Skips]:
    skips: Skips = Counter()
    offer = screening.offer_of(row, skips)
    return None if offer is None else offer.counts, skips


@given(st.sampled_from(SETTINGS), st.lists(st.tuples(anchors, snapshots), min_size=1, max_size=12))
def test_it_finds_the_same_whatever_came_before(
    settings: BufferSettings, records: list[tuple[list[AnchorPoint], tuple[int, ...] | None]]
) -> None:
    remembers = Screening(settings)
    for points, kept in records:
        row = row_with(points, kept)
        assert screened(remembers, row) == screened(Screening(settings), row)
