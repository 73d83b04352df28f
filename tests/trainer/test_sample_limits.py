"""Samples that can't be trained: told by name, or their groups left out (design/trainer#left-out)."""

from __future__ import annotations

from typing import Any

import pytest

from rolloutlog.contract.errors import SampleUnusable
from rolloutlog.contract.numbers import LARGEST
from rolloutlog.trainer.batches.advantages import Estimator
from rolloutlog.trainer.batches.sample_limits import LARGEST_ADVANTAGE, SampleLimits, usable
from rolloutlog.trainer.batches.samples import SampleTable, samples_of
from rolloutlog.trainer.batches.sampling import Sampling
from tests.trainer.desk import rollout
from tests.trainer.drawing import drawn_group


def table(*, temperature: float = 1.0, estimator: str = "grpo", rewards: tuple[float, float] = (0, 1)) -> SampleTable:
    """Groups g and h: prompt [1, 2], answers of two tokens from 10 on, and of member 1 of h of three."""
    g = drawn_group(*(rollout(m, reward=rewards[m]) for m in range(2)))
    h = drawn_group(rollout(0, group="h"), rollout(1, [4, 4, 4], group="h"))
    return samples_of([g, h], estimator=Estimator(estimator), sampling=Sampling(temperature=temperature))


@pytest.mark.parametrize(("size", "said"), [(13, None), (11, "token 11 at position 3"), (2, "token 2 at position 1")])
def test_a_token_outside_the_vocabulary_is_told_wherever_it_stands(size: int, said: str | None) -> None:
    """A label that is the last token, and context."""
    found = SampleLimits(vocabulary=size).unusable(table())
    assert [*found] == ([] if said is None else ["g", "h"])
    if said is not None:
        assert said in found["g"].message
        assert found["g"].member == 0
        assert found["g"].handle.startswith("0/0/")


@pytest.mark.parametrize(
    ("limits", "facts", "bad"),
    [
        ({"max_tokens": 4, "context": 4, "vocabulary": 13, "tempered": True}, {}, {}),
        ({"max_tokens": 3}, {}, {"h": "4 tokens, above max_tokens 3"}),
        ({"context": 3}, {}, {"h": "4 tokens, and the model has 3 positions"}),
        ({"vocabulary": 12}, {}, {"h": "token 12 at position 4"}),
        ({"tempered": True}, {"temperature": 0.0}, {"g": "temperature 0", "h": "temperature 0"}),
        ({"tempered": True}, {"temperature": 1e-9}, {"g": "temperature 1e-09", "h": "temperature 1e-09"}),
        ({"tempered": True}, {"temperature": 1e300}, {"g": "temperature inf", "h": "temperature inf"}),
        ({}, {"temperature": 0.0}, {}),
        ({}, {"estimator": "centred", "rewards": (0, 1e38)}, {"g": "advantage is beyond 1e+10"}),
        ({}, {"estimator": "rloo", "rewards": (-LARGEST, LARGEST)}, {"g": "advantage is beyond 1e+10"}),
        ({}, {"estimator": "rloo", "rewards": (0, LARGEST_ADVANTAGE)}, {}),
        ({}, {"estimator": "grpo", "rewards": (-LARGEST, LARGEST)}, {}),
    ],
)
def test_what_can_be_trained(limits: dict[str, Any], facts: dict[str, Any], bad: dict[str, str]) -> None:
    found = SampleLimits(**limits).unusable(table(**facts))
    assert found.keys() == bad.keys()
    assert all(said in found[group].message for group, said in bad.items())


def test_groups_are_left_out_as_far_as_it_is_asked_for() -> None:
    made, some, every = table(), SampleLimits(max_tokens=3), SampleLimits(vocabulary=2)
    with pytest.raises(SampleUnusable, match=r"member 1 of group h .*above max_tokens 3"):
        usable(made, some, "none")
    kept, left_out = usable(made, some, "some")
    assert ({one.group for one in kept.samples}, [*left_out]) == ({"g"}, ["h"])
    with pytest.raises(SampleUnusable, match="none of these 2 groups can be trained: member 0 of group g") as caught:
        usable(made, every, "some")
    assert "leave_out 'all'" in caught.value.hint
    kept, left_out = usable(made, every, "all")
    assert (kept.samples, [*left_out]) == ((), ["g", "h"])
