"""Values that are found sound together, many at once (design/trainer#columns)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rolloutlog.contract.events.sound_values import sound_values
from rolloutlog.contract.events.validation import read_rollout
from rolloutlog.contract.policies import Policy
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


@pytest.mark.parametrize("name", ["oldest_policy", "newest_policy"])
@pytest.mark.parametrize("bits", [31, 32, 48])
def test_no_header_names_a_policy_by_numbers_that_run_over(name: str, bits: int) -> None:
    """A version that no segment can name, whose upper bits would be those of the timeline."""
    made = Rollout.flat(
        prompt_ids=[1], response_ids=[2, 3], logprobs=[-0.5] * 2, versions=[Policy(1, 4)] * 2, reward=1.0, group="g",
        member=1, group_size=8,
    )  # fmt: skip
    raw = Raw.of(made)
    assert sound_values([raw.event(1)]) == [made.trajectory]
    assert sound_values([raw.but({name: f"0:{(1 << bits) + 4}".encode()}).event(1)]) == [None]
