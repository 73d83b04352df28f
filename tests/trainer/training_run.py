"""A run whose trainer has a model: settings, groups to learn from, and what the model thinks.

Guarantees: rollouts are sampled evenly from few tokens; the more of them are `GOOD`, the higher the reward, so a model
that learns says it more often. Leaves out: workers.
"""

from __future__ import annotations

import math
import random
from pathlib import Path
from typing import Any

import torch
from torch import nn

from rolloutlog.contract.policies import Policy
from rolloutlog.contract.record.rollout import Rollout
from rolloutlog.contract.settings import Settings
from rolloutlog.policy.weights import model_of

torch.set_num_threads(1)

GOOD, IDS, LENGTH, PROMPT = 3, 6, 3, [1, 2]
SMALL = {"vocabulary": IDS, "context": 8, "width": 16, "layers": 1, "heads": 2}


def training_settings(settings: Settings, folder: Path, **sections: Any) -> Settings:
    """With a small model that learns fast, and its folder."""
    own: dict[str, Any] = {
        "model": SMALL, "optimizer": {"lr": 0.02}, "training": {"folder": str(folder)},
        "trainer": {"batch_groups": 2, "staleness": {"max_staleness": None}, "max_open": 1000, "starve_s": 60},
    }  # fmt: skip
    merged = {name: {**own.get(name, {}), **sections.get(name, {})} for name in {*own, *sections}}
    return Settings.model_validate({**settings.model_dump(exclude_unset=True), **merged})


def groups(
    count: int, *, first: int = 0, members: int = 4, timeline: int = 0, version: int = 0, **slot: Any
) -> list[Rollout]:
    """Groups of a policy, one after another."""
    chance = random.Random(first)
    made: list[Rollout] = []
    for number in range(first, first + count):
        for member in range(members):
            ids = [chance.randrange(IDS) for _ in range(LENGTH)]
            made.append(
                Rollout.flat(
                    prompt_ids=PROMPT, response_ids=ids, logprobs=[-math.log(IDS)] * LENGTH,
                    versions=Policy(timeline, version), reward=ids.count(GOOD) + 0.01 * member,
                    group=f"group-{number}", member=member, group_size=members, temperature=1.0,
                    slot={"env": "good", **slot},
                )
            )  # fmt: skip
    return made


def chance_of_good(model: nn.Module) -> float:
    """How likely the model says it first."""
    ids = torch.tensor(PROMPT)
    with torch.inference_mode():
        odds = model(ids, torch.arange(len(ids)), torch.tensor([0, len(ids)]))
    return float(odds[-1].softmax(-1)[GOOD])


def chance_by(uri: str | None, digest: str | None) -> float:
    """By published weights."""
    assert uri is not None
    return chance_of_good(model_of(uri, digest))


class Table(nn.Module):
    """A model of somebody's own; `broken` gives no numbers."""

    def __init__(self, size: int = IDS, *, broken: bool = False) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.zeros(size, size))
        self.broken = broken

    def forward(self, input_ids: torch.Tensor, position_ids: torch.Tensor, cu_seqlens: torch.Tensor) -> torch.Tensor:
        del position_ids, cu_seqlens
        return self.table[input_ids] * (math.nan if self.broken else 1.0)


def text() -> str:
    """No model."""
    return "text"
