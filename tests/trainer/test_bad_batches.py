"""What may be wrong with what was drawn, and trains nevertheless (design/trainer#bad-batches)."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

import torch

from rolloutlog.contract.record.rollout import Rollout
from rolloutlog.trainer.batches.losses import Denominators, policy_loss
from rolloutlog.trainer.batches.sample_rows import IGNORED
from rolloutlog.trainer.batches.tensors import PackedBatch, pack
from tests.trainer.desk import SEED
from tests.trainer.drawing import drawn_group


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
