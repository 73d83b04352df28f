"""Samples of drawn groups: columns made at once are what one token after another gives (design/trainer#tensors)."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rolloutlog.contract.errors import SettingsError
from rolloutlog.contract.record.node import Node
from rolloutlog.contract.record.rollout import Rollout
from rolloutlog.contract.record.trajectory import Column
from rolloutlog.trainer.batches.advantages import Estimator
from rolloutlog.trainer.batches.micro_batches import micro_batches
from rolloutlog.trainer.batches.sample_rows import IGNORED
from rolloutlog.trainer.batches.samples import samples_of
from rolloutlog.trainer.batches.sampling import Sampling
from rolloutlog.trainer.batches.token_axis import OWN
from tests.trainer.batches_by_hand import group_of, nodes, plain
from tests.trainer.desk import rollout, staleness
from tests.trainer.drawing import drawn_group

MASKED = staleness(max_staleness=20, max_token_staleness=1, on_expire="keep-as-baseline")
COLUMNS = (
    "input_ids", "labels", "behaviour_logprobs", "advantages", "timelines", "versions", "temperature",
)  # fmt: skip


@given(st.lists(st.lists(nodes(), min_size=1, max_size=3), min_size=1, max_size=2), st.booleans())
def test_columns_of_any_forests_are_those_of_one_token_after_another(
    groups: list[list[list[Node]]], masked: bool
) -> None:
    drawn = [group_of(forests, **(MASKED if masked else staleness(max_staleness=20))) for forests in groups]
    table = samples_of(drawn)
    expected = [sample for group in drawn for sample in plain(group)]
    assert table.lengths.tolist() == [len(sample) for sample in expected]
    for number, name in enumerate(COLUMNS):
        rows = [row[number] for sample in expected for row in sample]
        assert table.columns[name].tolist() == pytest.approx(rows, nan_ok=True, rel=1e-6), name
    assert table.label_counts.tolist() == [sum(row[1] != IGNORED for row in sample) for sample in expected]


@given(st.lists(nodes(), min_size=1, max_size=3), st.integers(1, 12))
def test_what_is_cut_keeps_the_first_rows_of_each_sample(forests: list[list[Node]], most: int) -> None:
    """Wherever that is: within a node, a turn or a segment."""
    whole = samples_of([group_of(forests, **staleness(max_staleness=20))])
    lengths = np.minimum(whole.lengths, most)
    rows = np.concatenate([np.arange(start, start + n) for start, n in zip(whole.starts, lengths, strict=True)] or [[]])
    cut = whole.rows.cut(most)
    assert cut.lengths.tolist() == lengths.tolist()
    for name, column in cut.columns().items():
        np.testing.assert_array_equal(column, whole.columns[name][rows.astype(np.int64)], name)


def test_what_a_record_leaves_unsaid_of_its_sampling_the_run_says() -> None:
    """Else it is NaN."""
    hot = Rollout.flat(
        prompt_ids=[1], response_ids=[2, 3], logprobs=[-1, -1], versions=4, reward=1.0, temperature=0.7, top_k=20,
        group="g", member=0, group_size=2, slot={"origin_seed": "5eed" * 8, "origin_offset": 0},
    )  # fmt: skip
    group = drawn_group(hot, rollout(1))
    said = samples_of([group], sampling=Sampling(temperature=1.0)).columns
    assert said["temperature"].tolist() == pytest.approx([0.7, 0.7, 1, 1, 1])
    assert said["top_k"].tolist() == pytest.approx([20, 20] + [np.nan] * 3, nan_ok=True)
    assert np.isnan(samples_of([group]).columns["top_p"]).all()


@pytest.mark.parametrize("alignment", ["token", "sampled"])
def test_a_named_column_is_gathered_like_the_labels(alignment: str) -> None:
    """`routed_experts` of two layers; what wasn't sampled has 0."""
    made = [rollout(i, [4, 4, 4]) for i in range(2)]
    for number, one in enumerate(made):
        size = 5 if alignment == "token" else 3
        one.trajectory.columns["routed_experts"] = Column(
            np.arange(2 * size, dtype=np.uint8).reshape(size, 2) + 50 * number, alignment
        )
    found = samples_of([drawn_group(*made)], columns=["routed_experts"]).columns["routed_experts"]
    shifts = (0, 50)
    if alignment == "token":
        expected = [[a + shift, a + 1 + shift] for shift in shifts for a in (2, 4, 6, 8)]
    else:
        expected = [row for shift in shifts for row in ([0, 0], *([a + shift, a + 1 + shift] for a in (0, 2, 4)))]
    assert found.tolist() == expected


@given(st.lists(nodes(), min_size=1, max_size=3), st.integers(6, 40), st.integers(1, 3), st.booleans())
def test_named_columns_go_wherever_their_tokens_go(
    forests: list[list[Node]], budget: int, ranks: int, cut: bool
) -> None:
    """Over branches, packs, ranks, and what is cut: token ids and log-probs by another name stay what they are."""
    group = group_of(forests, **staleness(max_staleness=20))
    for member in group.members:
        assert member.rollout is not None
        own = member.rollout.trajectory
        own.columns["ids"] = Column(own.token_ids.copy(), "token")
        own.columns["told"] = Column(own.logprobs.copy(), "sampled")
    table = samples_of([group], columns=["ids", "told"])
    longest = int(table.lengths.max())
    for share in micro_batches(table, budget if cut else longest, ranks=ranks, overlong="truncate" if cut else "error"):
        for part in share:
            found = part.columns
            used = found["labels"] != IGNORED
            assert (found["ids"] == found["labels"])[used].all()
            assert (found["told"] == found["behaviour_logprobs"]).all()


def test_a_named_column_that_some_records_lack_is_refused() -> None:
    made = [rollout(i) for i in range(2)]
    made[0].trajectory.columns["routed_experts"] = Column(np.zeros(2, np.uint8), "sampled")
    with pytest.raises(SettingsError, match="routed_experts is missing in some records"):
        samples_of([drawn_group(*made)], columns=["routed_experts"])


def test_a_named_column_of_several_shapes_is_refused() -> None:
    made = [rollout(i) for i in range(2)]
    for width, one in enumerate(made, 2):
        one.trajectory.columns["routed_experts"] = Column(np.zeros((2, width), np.uint8), "sampled")
    with pytest.raises(SettingsError, match=r"routed_experts says \[2\] and \[3\] numbers of a token"):
        samples_of([drawn_group(*made)], columns=["routed_experts"])


@pytest.mark.parametrize(
    ("kinds", "made"),
    [
        ((np.int64, np.int64), "int64"),
        ((np.uint8, np.int32), "int32"),
        ((np.int32, np.float32), "float64"),
        ((np.int64, np.uint64), None),
        ((np.int64, np.float32), None),
    ],
)
def test_a_named_column_keeps_every_number_or_is_refused(kinds: tuple[type[np.generic], ...], made: str | None) -> None:
    """The largest of each dtype, which float64 doesn't hold of 64 bits."""
    both = [rollout(i) for i in range(2)]
    largest = [np.iinfo(kind).max if issubclass(kind, np.integer) else 0.5 for kind in kinds]
    for one, kind, number in zip(both, kinds, largest, strict=True):
        one.trajectory.columns["told"] = Column(np.full(2, number, kind), "sampled")
    group = drawn_group(*both)
    if made is None:
        with pytest.raises(SettingsError, match=r"column told holds \w+ and \w+, and no dtype holds every number"):
            samples_of([group], columns=["told"])
    else:
        table = samples_of([group], columns=["told"])
        found = table.columns["told"][table.columns["labels"] != IGNORED]
        assert (found.dtype.name, found.tolist()) == (made, [number for number in largest for _ in range(2)])


@pytest.mark.parametrize("name", OWN)
def test_a_named_column_takes_the_place_of_none_that_packs_have(name: str) -> None:
    made = [rollout(i) for i in range(2)]
    for one in made:
        one.trajectory.columns[name] = Column(one.trajectory.token_ids + 1, "token")
    with pytest.raises(SettingsError, match=f"packs have a column {name} of their own"):
        samples_of([drawn_group(*made)], columns=[name])


def test_named_columns_of_no_sample_are_empty() -> None:
    made = [rollout(i) for i in range(2)]
    for one in made:
        one.trajectory.columns["routed_experts"] = Column(np.zeros((2, 3), np.uint8), "sampled")
    table = samples_of([drawn_group(*made)], columns=["routed_experts"]).cut(0)
    assert (table.samples, table.columns["routed_experts"].shape) == ((), (0, 3))


@pytest.mark.parametrize(("estimator", "expected"), [("grpo", 0.70711), ("centred", 0.5), ("rloo", 1.0)])
def test_advantages_are_by_the_named_estimator(estimator: str, expected: float) -> None:
    columns = samples_of([drawn_group(rollout(0), rollout(1))], estimator=Estimator(estimator)).columns
    assert np.abs(columns["advantages"][columns["labels"] != IGNORED]).tolist() == pytest.approx(
        [expected] * 4, abs=1e-5
    )


def test_samples_keep_their_members_reward_agent_and_stop() -> None:
    cut = rollout(1)
    cut.trajectory.record["stop_condition"] = "length"
    cut.trajectory.record_text = b'{"reward": 1.0, "stop_condition": "length", "nodes": [{}, {"sampled": true}]}'
    table = samples_of([drawn_group(rollout(0), cut)])
    assert [(s.reward, s.agent, s.truncated, s.stop_condition) for s in table.samples] == [
        (0.0, 0, False, None),
        (1.0, 0, True, "length"),
    ]
