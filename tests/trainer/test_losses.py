"""The policy loss against plain float64, with gradients (design/trainer#losses; decisions/staleness#142 to #147)."""

from __future__ import annotations

import hashlib
import math
import random
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rolloutlog.contract.errors import SampleUnusable, SettingsError
from rolloutlog.contract.record.node import Node
from rolloutlog.contract.record.rollout import Rollout
from rolloutlog.trainer.batches.importance import Importance
from rolloutlog.trainer.batches.losses import (
    Clip,
    Constant,
    Denominators,
    PackLoss,
    SequenceMean,
    TokenMean,
    aggregated,
    label_entropies,
    label_logprobs,
    policy_loss,
)
from rolloutlog.trainer.batches.micro_batches import micro_batches
from rolloutlog.trainer.batches.mismatch import Mismatch
from rolloutlog.trainer.batches.sample_rows import IGNORED
from rolloutlog.trainer.batches.samples import samples_of
from rolloutlog.trainer.batches.sampling import Sampling
from rolloutlog.trainer.batches.tensors import PackedBatch, pack
from tests.trainer.batches_by_hand import group_of
from tests.trainer.desk import SEED, staleness
from tests.trainer.drawing import drawn_group
from tests.trainer.loss_by_hand import Label, gradient_of, loss_of

VOCABULARY = 7
AGGREGATIONS = {"token": TokenMean(), "sequence": SequenceMean(), "constant": Constant(12)}


def packed_of(logprobs: list[list[float]], temperature: float = 1.0, rewards: list[float] | None = None) -> PackedBatch:
    """A pack of one group whose members sampled these log-probs; ids count up in a small vocabulary."""
    made = [
        Rollout.flat(
            prompt_ids=[1, 2], response_ids=[(i + j) % VOCABULARY for j in range(len(own))], logprobs=own, versions=4,
            reward=float(i) if rewards is None else rewards[i], group="g", member=i, group_size=len(logprobs),
            temperature=temperature, slot={"origin_seed": SEED, "origin_offset": 0},
        )
        for i, own in enumerate(logprobs)
    ]  # fmt: skip
    return pack([drawn_group(*made)])


def denominators_of(packed: PackedBatch) -> Denominators:
    return Denominators(packed.trainable_tokens, len(packed.samples))


def labels_of(packed: PackedBatch, logits: torch.Tensor) -> list[list[Label]]:
    made: list[list[Label]] = [[] for _ in packed.samples]
    for i, label in enumerate(packed.labels.tolist()):
        if label != IGNORED:
            made[int(packed.sample_index[i])].append(
                Label(logits[i].tolist(), label, float(packed.behaviour_logprobs[i]), float(packed.advantages[i]),
                      float(packed.temperature[i]))
            )  # fmt: skip
    return made


def random_case(seed: int, temperature: float) -> tuple[PackedBatch, torch.Tensor]:
    """Three members of up to five tokens; logits that are far from what sampled, so that ratios are clipped."""
    draw = random.Random(seed)
    packed = packed_of([[-3 * draw.random() for _ in range(draw.randint(1, 5))] for _ in range(3)], temperature)
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(len(packed.labels), VOCABULARY, generator=generator, dtype=torch.float64)
    return packed, logits.requires_grad_()


def token_weights(rows: list[list[float]], *, low: float, high: float, mask: bool) -> list[list[float]]:
    ratios = [[math.exp(x) for x in row] for row in rows]
    if mask:
        return [[r if low <= r <= high else 0.0 for r in row] for row in ratios]
    return [[min(max(r, low), high) for r in row] for row in ratios]


def sequence_weights(rows: list[list[float]], **bounds: Any) -> list[list[float]]:
    return token_weights([[sum(row)] * len(row) for row in rows], **bounds)


def compare(
    packed: PackedBatch,
    logits: torch.Tensor,
    loss: torch.Tensor,
    plain: Any,
    sequences: list[list[Label]] | None = None,
) -> None:
    """Loss and gradient of the logits are those of the plain reference."""
    sequences = sequences or labels_of(packed, logits.detach())
    assert loss.item() == pytest.approx(plain(sequences, {}), rel=1e-4, abs=1e-6)
    loss.backward()
    assert logits.grad is not None
    expected = gradient_of(partial(plain, sequences), sequences)
    flat = [row for sequence in expected for row in sequence]
    assert logits.grad[packed.loss_mask].flatten().tolist() == pytest.approx(
        np.ravel(flat).tolist(), rel=1e-3, abs=1e-5
    )
    assert not logits.grad[~packed.loss_mask].any()


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
@pytest.mark.parametrize("temperature", [0.7, 1.0])
@pytest.mark.parametrize("clip", [Clip(), Clip(low=0.1, high=0.3, dual=None)], ids=["dual", "plain"])
def test_loss_and_gradient_are_those_of_the_plain_reference(aggregation: str, temperature: float, clip: Clip) -> None:
    for seed in range(5):
        packed, logits = random_case(seed, temperature)
        loss = policy_loss(logits, packed, denominators_of(packed), clip=clip, aggregation=AGGREGATIONS[aggregation])
        plain = partial(loss_of, aggregation=aggregation, length=12, low=clip.low, high=clip.high, dual=clip.dual)
        compare(packed, logits, loss, plain)


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
def test_a_bonus_for_even_odds_is_that_of_the_plain_reference(aggregation: str) -> None:
    for seed in range(3):
        packed, logits = random_case(seed, 0.7)
        over = partial(policy_loss, clip=Clip(low=0.2, high=0.28), entropy=0.4)
        loss = over(logits, packed, denominators_of(packed), aggregation=AGGREGATIONS[aggregation])
        compare(packed, logits, loss, partial(loss_of, aggregation=aggregation, length=12, high=0.28, entropy=0.4))


def test_a_token_that_cant_be_drawn_leaves_the_entropy_a_number() -> None:
    packed, logits = random_case(0, 1.0)
    banned = logits.detach().clone()
    banned[:, (packed.labels.max() + 1) % VOCABULARY] = -math.inf
    banned.requires_grad_()
    entropies = label_entropies(banned, packed)
    entropies.sum().backward()
    assert banned.grad is not None
    assert torch.isfinite(entropies).all()
    assert torch.isfinite(banned.grad).all()
    assert (entropies[packed.loss_mask] <= math.log(VOCABULARY - 1) + 1e-6).all()


@pytest.mark.parametrize("mask", [False, True], ids=["truncate", "mask"])
@pytest.mark.parametrize("level", ["token", "sequence"])
def test_importance_weighs_what_the_behaviour_policies_sampled(level: Any, mask: bool) -> None:
    """Without `proximal` the ratio is to the policy itself, and the weight corrects for the rest."""
    for seed in range(5):
        packed, logits = random_case(seed, 1.0)
        importance = Importance(level=level, mode="mask" if mask else "truncate", low=0.3, high=1.5)
        weigh = partial(token_weights if level == "token" else sequence_weights, low=0.3, high=1.5, mask=mask)
        loss = policy_loss(logits, packed, denominators_of(packed), importance=importance)
        compare(packed, logits, loss, partial(loss_of, aggregation="token", proximal="itself", weigh=weigh))


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
@pytest.mark.parametrize("level", ["token", "sequence"])
def test_a_proximal_policy_lies_between_what_sampled_and_what_is_trained(level: Any, aggregation: str) -> None:
    """The ratio is to it, with both clips, and importance corrects from the behaviour policies to it."""
    for seed in range(3):
        packed, logits = random_case(seed, 0.7)
        draw = random.Random(seed)
        proximal = torch.tensor([-3 * draw.random() for _ in packed.labels])
        sequences = [
            [replace(label, proximal=near) for label, near in zip(labels, nears, strict=True)]
            for labels, nears in zip(labels_of(packed, logits.detach()), _by_sequence(packed, proximal), strict=True)
        ]
        weigh = partial(token_weights if level == "token" else sequence_weights, low=0.3, high=1.5, mask=False)
        plain = partial(
            loss_of, aggregation=aggregation, length=12, proximal="given", weigh=weigh, low=0.1, high=0.3, dual=2.0
        )
        loss = policy_loss(
            logits, packed, denominators_of(packed), proximal=proximal, clip=Clip(low=0.1, high=0.3, dual=2.0),
            importance=Importance(level=level, low=0.3, high=1.5), aggregation=AGGREGATIONS[aggregation],
        )  # fmt: skip
        compare(packed, logits, loss, plain, sequences)


def _by_sequence(packed: PackedBatch, values: torch.Tensor) -> list[list[float]]:
    """Of the labels in the loss."""
    used = packed.loss_mask
    return [values[used & (packed.sample_index == i)].tolist() for i in range(len(packed.samples))]


def weights_of(ratios: list[list[float]], **settings: Any) -> list[float]:
    packed = packed_of([[-5.0] * len(row) for row in ratios])
    proximal = packed.behaviour_logprobs.clone()
    proximal[packed.loss_mask] += torch.tensor([math.log(r) for row in ratios for r in row])
    return Importance(**settings).weights(proximal, packed)[packed.loss_mask].tolist()


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"low": 0.5, "high": 2.0}, [1, 2, 2]),
        ({"low": 0.5, "high": 2.0, "mode": "mask"}, [1, 2, 0]),
        ({"low": 0.5, "high": 2.0, "level": "sequence"}, [2, 2, 2]),
        ({"low": 0.5, "high": 2.0, "level": "sequence", "mode": "mask"}, [0, 0, 0]),
        ({"low": 0.5, "high": 2.0, "level": "geometric"}, [1.8171] * 3),
        ({"low": 0.5, "high": 9.0, "veto": (0.01, 2.5)}, [0, 0, 0]),
        ({"low": 0.5, "high": 9.0, "veto": (0.01, 3.5)}, [1, 2, 3]),
    ],
    ids=["token", "token-mask", "sequence", "sequence-mask", "geometric", "veto", "no-veto"],
)
def test_the_worked_weights(settings: dict[str, Any], expected: list[float]) -> None:
    """Ratios 1, 2 and 3 of one sequence, and another whose ratios are 1 (decisions/staleness#145 and #146)."""
    assert weights_of([[1, 2, 3], [1, 1]], **settings) == pytest.approx([*expected, 1, 1], abs=1e-4)


def test_bounds_that_are_the_wrong_way_round_are_refused() -> None:
    with pytest.raises(SettingsError, match="low comes first"):
        Importance(low=2.0, high=0.5)


@settings(max_examples=20)
@given(st.integers(6, 40), st.integers(1, 3), st.sampled_from(sorted(AGGREGATIONS)))
def test_packs_and_ranks_add_up_to_the_loss_of_the_step(budget: int, ranks: int, aggregation: str) -> None:
    groups = [
        drawn_group(*(
            Rollout.flat(
                prompt_ids=[1], response_ids=[2] * n, logprobs=[-0.3 * n] * n, versions=4, reward=float(m), group=g,
                member=m, group_size=2, temperature=1.0, slot={"origin_seed": SEED, "origin_offset": 0},
            ) for m, n in enumerate(sizes)
        ))
        for g, sizes in (("a", (3, 5)), ("b", (1, 4)))
    ]  # fmt: skip
    table = samples_of(groups)
    over = partial(policy_loss, denominators=Denominators.of(table), aggregation=AGGREGATIONS[aggregation])
    whole = PackedBatch.of(table)
    parts = [PackedBatch.of(one) for share in micro_batches(table, budget, ranks=ranks) for one in share]
    total = sum(float(over(torch.zeros(len(one.labels), VOCABULARY), one)) for one in parts)
    assert total == pytest.approx(float(over(torch.zeros(len(whole.labels), VOCABULARY), whole)), rel=1e-5)


def hashed(prefix: tuple[int, ...]) -> list[float]:
    """Logits that depend on the whole prefix, so that a wrong position, boundary or label shows."""
    digest = hashlib.sha256(str(prefix).encode()).digest()
    return [byte / 64 for byte in digest[:VOCABULARY]]


def logprob(prefix: tuple[int, ...], token: int) -> float:
    logits = hashed(prefix)
    return logits[token] - math.log(sum(math.exp(x) for x in logits))


def hash_model(packed: PackedBatch) -> torch.Tensor:
    """Logits of a pack: of each token, by what lies before it in its own sequence."""
    ids, bounds = packed.input_ids.tolist(), packed.cu_seqlens.tolist()
    rows = [hashed(tuple(ids[a : i + 1])) for a, b in pairwise(bounds) for i in range(a, b)]
    return torch.tensor(rows).reshape(len(ids), VOCABULARY)


def turn(draw: random.Random, parent: int, before: tuple[int, ...], *, sampled: bool) -> Node:
    tokens = [draw.randrange(VOCABULARY) for _ in range(draw.randint(1, 4))]
    if not sampled:
        return Node(parent=parent, token_ids=tokens, mask=[0] * len(tokens))
    logprobs = [logprob((*before, *tokens[:i]), token) for i, token in enumerate(tokens)]
    return Node(
        parent=parent, sampled=True, token_ids=tokens, mask=[1] * len(tokens), logprobs=logprobs,
        segments=[(0, 4, 0)], facts={"temperature": 1.0},
    )  # fmt: skip


def conversation(seed: int) -> list[Node]:
    """Turns of a user and the policy, with branches, as the hash model would have sampled them."""
    draw = random.Random(seed)
    made: list[Node] = []
    prefixes: list[tuple[int, ...]] = []
    for number in range(draw.randint(2, 8)):
        parent = draw.randrange(number) if number else -1
        before = prefixes[parent] if number else ()
        made.append(turn(draw, parent, before, sampled=number > 0 and number % 2 == 1))
        prefixes.append(before + tuple(made[-1].token_ids))
    return made


@settings(max_examples=30)
@given(st.lists(st.integers(0, 10**6), min_size=1, max_size=4), st.integers(40, 90), st.integers(1, 3))
def test_a_model_that_hashes_its_prefix_has_ratios_of_one(seeds: list[int], budget: int, ranks: int) -> None:
    """Over packs, branches, turns and ranks."""
    table = samples_of([group_of([conversation(seed) for seed in seeds], **staleness(max_staleness=9))])
    table = table.only([i for i, s in enumerate(table.samples) if s.member < len(seeds)])
    for share in micro_batches(table, budget, ranks=ranks):
        for one in share:
            packed = PackedBatch.of(one)
            found = label_logprobs(hash_model(packed), packed)
            apart = (found - packed.behaviour_logprobs)[packed.loss_mask]
            assert bool((apart.abs() < 1e-4).all())


@pytest.mark.parametrize("temperature", [0.0, 1e-9, math.inf, None], ids=["cold", "greedy", "infinite", "unsaid"])
def test_a_temperature_that_is_missing_or_no_temperature_is_refused(temperature: float | None) -> None:
    packed = packed_of([[-1.0], [-2.0]])
    bad = torch.full_like(packed.temperature, math.nan if temperature is None else temperature)
    with pytest.raises(SampleUnusable, match=r"member 0 of group g \(rollouts/0/0\): temperature"):
        policy_loss(torch.zeros(len(packed.labels), 9), replace(packed, temperature=bad), denominators_of(packed))


def test_a_label_outside_the_vocabulary_is_told() -> None:
    packed = packed_of([[-1.0] * 6, [-2.0]])
    with pytest.raises(SampleUnusable, match=r"member 0 of group g .*: token 4 is outside a vocabulary of 4"):
        policy_loss(torch.zeros(len(packed.labels), 4), packed, denominators_of(packed))


def test_logits_of_another_pack_are_refused() -> None:
    packed = packed_of([[-1.0], [-2.0]])
    with pytest.raises(SettingsError, match="logits of 3 tokens for a pack of 4"):
        policy_loss(torch.zeros(3, 9), packed, denominators_of(packed))


def test_an_empty_pack_has_a_loss_of_nothing() -> None:
    assert policy_loss(torch.zeros(0, 9), pack([]), Denominators(0, 0)).item() == 0


def test_a_pack_without_a_label_adds_nothing_and_no_nan() -> None:
    """A batch without a trainable token (decisions/staleness#142 and #143)."""
    packed = packed_of([[-1.0], [-2.0]])
    packed = replace(packed, labels=torch.full_like(packed.labels, IGNORED))
    logits = torch.zeros(len(packed.labels), 9, requires_grad=True)
    report = Mismatch()
    loss = policy_loss(logits, packed, Denominators(0, 0), report=report)
    loss.backward()
    assert loss.item() == 0
    assert logits.grad is not None
    assert not logits.grad.any()
    assert (report.tokens, report.kl, report.effective) == (0, 0, 0)


def test_the_mismatch_is_of_the_labels_in_the_loss_alone() -> None:
    """Ratios 1, 2, 3 and 1 (decisions/staleness#147); packs add up."""
    packed = packed_of([[-5.0] * 3, [-5.0]])
    logprobs = packed.behaviour_logprobs.clone()
    logprobs[packed.loss_mask] += torch.tensor([0, math.log(2), math.log(3), 0])
    weights = torch.ones_like(logprobs)
    weights[packed.loss_mask] = torch.tensor([1.0, 1.0, 0.0, 1.0])
    report = Mismatch()
    report.add(logprobs, packed, clipped=weights == 0, weights=weights)
    assert report.kl == pytest.approx(-math.log(6) / 4)
    assert report.k3 == pytest.approx((1 + 2 - math.log(6)) / 4)
    assert report.effective == pytest.approx(49 / (4 * 15))
    assert report.perplexity == pytest.approx(math.exp(5), rel=1e-4)
    assert (report.clipped_share, report.rejected_share) == (0.25, 0.25)
    assert (report + report).effective == pytest.approx(report.effective)
    assert (report + Mismatch()).k3 == report.k3


def test_another_loss_is_a_function_of_ones_own() -> None:
    """REINFORCE by the parts that are there, in place of the policy loss."""

    def reinforce(logits: torch.Tensor, packed: PackedBatch, denominators: Denominators, /) -> torch.Tensor:
        return aggregated(-label_logprobs(logits, packed) * packed.advantages, packed, denominators)

    own: PackLoss = reinforce
    packed = packed_of([[-1.0, -1.0], [-2.0]])
    logits = torch.zeros(len(packed.labels), VOCABULARY, requires_grad=True)
    loss = own(logits, packed, denominators_of(packed))
    assert loss.item() == pytest.approx(-(2 * -0.70711 + 0.70711) * -math.log(VOCABULARY) / 3, rel=1e-4)


def test_sampling_of_the_run_answers_for_records_that_say_nothing() -> None:
    made = [
        Rollout.flat(
            prompt_ids=[1], response_ids=[2], logprobs=[-1], versions=4, reward=float(i), group="g", member=i,
            group_size=2, slot={"origin_seed": SEED, "origin_offset": 0},
        )
        for i in range(2)
    ]  # fmt: skip
    packed = pack([drawn_group(*made)], sampling=Sampling(temperature=1.0))
    assert math.isfinite(float(policy_loss(torch.zeros(2, 9), packed, denominators_of(packed))))
