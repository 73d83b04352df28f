"""What may be wrong with what was drawn, and trains nevertheless (design/trainer#bad-batches)."""

from __future__ import annotations

import dataclasses
import math

import pytest

pytest.importorskip("torch")

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rolloutlog.contract.numbers import LARGEST
from rolloutlog.contract.record.rollout import Rollout
from rolloutlog.contract.settings import Settings
from rolloutlog.trainer.batches.advantages import Estimator
from rolloutlog.trainer.batches.losses import Denominators, policy_loss
from rolloutlog.trainer.batches.rank_share import rank_shares
from rolloutlog.trainer.batches.sample_limits import SampleLimits, usable
from rolloutlog.trainer.batches.sample_rows import IGNORED
from rolloutlog.trainer.batches.samples import samples_of
from rolloutlog.trainer.batches.tensors import PackedBatch, pack
from rolloutlog.trainer.training.model_choice import chosen_model, chosen_optimizer
from rolloutlog.trainer.training.model_limits import limits_of
from rolloutlog.trainer.training.model_step import ModelStep
from tests.trainer.desk import SEED
from tests.trainer.drawing import drawn_group

torch.set_num_threads(1)


def made(prompts: list[list[int]], answers: list[list[int]]) -> PackedBatch:
    members = [
        Rollout.flat(
            prompt_ids=prompt, response_ids=answer, logprobs=[-1.0] * len(answer), versions=4, reward=float(m),
            group="g", member=m, group_size=len(prompts), temperature=1.0,
            slot={"origin_seed": SEED, "origin_offset": 0},
        )
        for m, (prompt, answer) in enumerate(zip(prompts, answers, strict=True))
    ]  # fmt: skip
    return pack([drawn_group(*members)])


REWARDS = st.sampled_from([0.0, 1.0, -1.0, 1e9, 1e10, 1e38, LARGEST, -LARGEST])
LOGPROBS = st.sampled_from([0.0, -1e-40, -1.0, -1e3, -LARGEST])
TEMPERATURES = st.sampled_from([0.0, 1e-40, 1e-6, 1e-5, 0.7, 1.0, 1e30, 1e300])


@st.composite
def hostile_members(draw: st.DrawFn) -> list[Rollout]:
    """Two groups of what the log takes: extreme numbers, odd ids, long answers, none."""
    made: list[Rollout] = []
    for group in ("g", "h"):
        for member in range(3):
            ids = draw(st.lists(st.integers(0, 8), min_size=0 if member else 2, max_size=7))
            made.append(
                Rollout.flat(
                    prompt_ids=draw(st.lists(st.integers(0, 8), max_size=2)), response_ids=ids,
                    logprobs=[draw(LOGPROBS) for _ in ids], versions=4, reward=draw(REWARDS), group=group,
                    member=member, group_size=3, temperature=draw(TEMPERATURES),
                    slot={"origin_seed": SEED, "origin_offset": 0},
                )
            )  # fmt: skip
    return made


@settings(max_examples=25)
@given(hostile_members(), st.sampled_from(Estimator), st.booleans())
def test_what_the_log_takes_trains_or_is_left_out_and_weights_stay_numbers(
    members: list[Rollout], estimator: Estimator, token_mean: bool
) -> None:
    said = Settings.model_validate(
        {
            "model": {"vocabulary": 8, "context": 6, "width": 4, "heads": 1, "layers": 1},
            "loss": {"aggregation": "token" if token_mean else "sequence", "entropy": 0.1},
        }
    )
    model = chosen_model(said)
    groups = [drawn_group(*(one for one in members if one.slot.group == name)) for name in ("g", "h")]
    limits = SampleLimits(**limits_of(model, said)._asdict(), tempered=True)
    table, left_out = usable(samples_of(groups, estimator=estimator), limits, "all")
    assert left_out.keys().isdisjoint(one.group for one in table.samples)
    if table.samples:
        mini = rank_shares(table, 64)[0]
        numbers = ModelStep(model, chosen_optimizer(said.optimizer, model), said)(1, mini.packs, mini.denominators)
        assert all(map(math.isfinite, dataclasses.astuple(numbers)))
    assert all(bool(weight.isfinite().all()) for weight in model.parameters())


def test_without_a_prompt_the_first_token_is_context() -> None:
    packed = made([[], [1]], [[5, 6, 7], [5]])
    assert packed.input_ids.tolist() == [5, 6, 1]
    assert packed.labels.tolist() == [6, 7, 5]
    logits = torch.zeros(3, 9, requires_grad=True)
    policy_loss(logits, packed, Denominators(packed.trainable_tokens, 2)).backward()
    assert logits.grad is not None
    assert logits.grad.isfinite().all()


def test_a_member_of_one_token_without_a_prompt_is_in_the_baseline_alone() -> None:
    """There is nothing to predict it from; its reward counts, and it isn't in any denominator."""
    packed = made([[], [1]], [[5], [5, 6]])
    assert [one.member for one in packed.samples] == [1]
    assert int((packed.labels != IGNORED).sum()) == 2
    assert float(packed.advantages.max()) > 0
