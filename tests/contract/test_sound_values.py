"""Values that are found sound together, many at once (design/trainer#columns)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rolloutlog.contract.events.sound_values import sound_values
from rolloutlog.contract.events.validation import read_rollout
from rolloutlog.contract.record.rollout import Rollout
from rolloutlog.contract.record.slot import Slot
from rolloutlog.contract.vocabulary import Status
from tests.cases.hostile import hostile
from tests.cases.raw import Raw
from tests.cases.strategies import trajectories

HEADERS: list[dict[str, bytes | None]] = [
    {}, {"reward": b"0.25"}, {"reward": None}, {"tokens": b"x"}, {"type": b"rollout.failed"}, {"type": None},
    {"digest": None}, {"member": b"-1"}, {"group_size": None}, {"oldest_policy": b"?"}, {"newest_policy": None},
]  # fmt: skip


def honest() -> st.SearchStrategy[Raw]:
    """Records as producers write them."""
    return st.builds(lambda one: Raw.of(Rollout(Slot(group="g", group_size=8, member=1), one)), trajectories())


@given(st.lists(st.tuples(hostile | honest(), st.sampled_from(HEADERS)), max_size=5))
def test_a_value_that_is_found_sound_is_one_that_the_validator_reads(
    made: list[tuple[Raw, dict[str, bytes | None]]],
) -> None:
    """Whatever headers and values say, and it raises for none."""
    events = [raw.but(headers).event(1) for raw, headers in made]
    for event, found in zip(events, sound_values(events), strict=True):
        assert found is None or Rollout(Slot.of(event.headers), found, Status.COMPLETED) == read_rollout(event)
