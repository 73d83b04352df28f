"""A model and tokenizer of a few letters, with weights from a seed.

Guarantees: real torch; odds that aren't even, so that a wrong prefix shows. Leaves out: learning.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import torch

from rolloutlog.contract.policies import Policy
from rolloutlog.policy.tokenizer import CharTokenizer
from rolloutlog.policy.torch_engine import OnSwap, TorchEngine
from rolloutlog.policy.transformer import CausalTransformer, ModelShape
from rolloutlog.policy.weights import SavedWeights, save_weights

TOKENIZER = CharTokenizer("abcdefgh")
SHAPE = ModelShape(vocabulary=TOKENIZER.size, context=48, width=16, layers=2, heads=2)


def model(seed: int = 0) -> CausalTransformer:
    torch.manual_seed(seed)
    made = CausalTransformer(SHAPE)
    torch.nn.init.normal_(made.unembed.weight, 0, 0.5)
    return made


def engine(on_swap: OnSwap = "in-place", seed: int = 0, rows: int = 64) -> TorchEngine:
    return TorchEngine(model(seed), TOKENIZER, Policy(0, seed), on_swap=on_swap, seed=7, rows=rows)


def saved(folder: Path, seed: int) -> SavedWeights:
    return save_weights(model(seed), folder, Policy(0, seed))


@cache
def _reference(seed: int) -> CausalTransformer:
    return model(seed)


def logprobs_of(prompt: list[int], ids: list[int], seed: int) -> list[float]:
    """Of each token after the prompt, by the weights of that seed, without any cache."""
    whole = torch.tensor([prompt + ids])
    with torch.inference_mode():
        odds = _reference(seed).whole(whole)[0].log_softmax(-1)
    return [float(odds[len(prompt) + i - 1, token]) for i, token in enumerate(ids)]
