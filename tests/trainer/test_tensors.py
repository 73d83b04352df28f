"""Packed tensors (design/trainer#tensors)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

import torch

from rolloutlog.contract.errors import SettingsError
from rolloutlog.contract.record.node import Node
from rolloutlog.contract.record.rollout import Rollout
from rolloutlog.contract.record.slot import Slot
from rolloutlog.contract.record.trajectory import Column, Trajectory
from rolloutlog.trainer.batches.sample_rows import IGNORED
from rolloutlog.trainer.batches.tensors import pack
from tests.trainer.desk import SEED, rollout, staleness
from tests.trainer.drawing import drawn_group

MASKED = staleness(max_staleness=20, max_token_staleness=1, on_expire="drop-group")


def member(number: int, prompt: list[int], response: list[int], versions: list[int], **more: Any) -> Rollout:
    logprobs = [-0.1 * (i + 1) for i in range(len(response))]
    return Rollout.flat(
        prompt_ids=prompt, response_ids=response, logprobs=logprobs, versions=versions, reward=float(number), group="g",
        member=number, group_size=2, slot={"origin_seed": SEED, "origin_offset": 0, "run": "r"}, **more,
    )  # fmt: skip


def test_the_layout_of_one_sample() -> None:
    """Labels and log-probs of a sample with a token masked by its producer (decisions/staleness#136 and #137)."""
    made = member(0, [10, 11, 12], [20, 21, 22], [4, 4, 4])
    made.trajectory.columns["loss_mask"] = Column(np.array([1, 0, 1], np.uint8), "sampled")
    packed = pack([drawn_group(made, member(1, [1], [], []))])
    assert packed.input_ids.tolist() == [10, 11, 12, 20, 21]
    assert packed.labels.tolist() == [IGNORED, IGNORED, 20, IGNORED, 22]
    assert packed.behaviour_logprobs.tolist() == pytest.approx([0, 0, -0.1, -0.2, -0.3])
    assert packed.position_ids.tolist() == [0, 1, 2, 3, 4]
    assert torch.stack([packed.timelines, packed.versions], 1).tolist() == [[-1, -1], [-1, -1], [0, 4], [0, 4], [0, 4]]


def test_the_padded_form_has_a_row_a_sequence_and_gives_the_same_tokens_back() -> None:
    """Of any tensor of tokens, whatever more dimensions it has; on request alone."""
    group = drawn_group(member(0, [1, 2], [20, 21], [4, 4]), member(1, [3], [30, 31, 32, 33], [4] * 4))
    packed = pack([group])
    assert packed.cu_seqlens.tolist() == [0, 3, 7]
    assert packed.padded(packed.input_ids).tolist() == [[1, 2, 20, 0], [3, 30, 31, 32]]
    labels = packed.padded(packed.labels, IGNORED)
    assert labels.tolist() == [[IGNORED, 20, 21, IGNORED], [30, 31, 32, 33]]
    assert labels[labels != IGNORED].tolist() == packed.labels[packed.loss_mask].tolist()
    two = torch.stack([packed.input_ids, packed.position_ids], 1)
    assert packed.padded(two, 9)[0].tolist() == [[1, 0], [2, 1], [20, 2], [9, 9]]
    assert pack([]).padded(pack([]).labels).shape == (0, 0)


def test_advantages_lie_at_their_labels_whatever_is_masked_before_them() -> None:
    """Two samples of 2 prompt and 4 response tokens with a stale prefix of 2 (decisions/staleness#138)."""
    versions = [0, 0, 4, 4]
    group = drawn_group(
        member(0, [1, 2], [20, 21, 22, 23], versions), member(1, [3, 4], [30, 31, 32, 33], versions), **MASKED
    )
    packed = pack([group])
    assert packed.cu_seqlens.tolist() == [0, 5, 10]
    assert packed.labels.tolist() == [IGNORED] * 3 + [22, 23] + [IGNORED] * 3 + [32, 33]
    low, high = -0.70711, 0.70711
    assert packed.advantages.tolist() == pytest.approx([0] * 3 + [low] * 2 + [0] * 3 + [high] * 2, abs=1e-5)
    assert packed.loss_mask.tolist() == [label != IGNORED for label in packed.labels.tolist()]
    assert packed.trainable_tokens == 4
    assert packed.longest == 5


def test_every_sample_says_where_it_comes_from() -> None:
    packed = pack([drawn_group(member(0, [1], [2, 3], [4, 4]), member(1, [1], [4], [4]))])
    assert [(s.run, s.group, s.member, s.attempt, s.handle.offset, s.leaf) for s in packed.samples] == [
        ("r", "g", 0, 1, 0, 1),
        ("r", "g", 1, 1, 1, 1),
    ]


def test_a_member_without_a_trained_token_is_no_sample() -> None:
    """It adds nothing to the denominator, though its reward counts (decisions/staleness#143)."""
    group = drawn_group(member(0, [1], [2], [0]), member(1, [1], [3], [4]), **staleness(on_expire="keep-as-baseline"))
    packed = pack([group])
    assert [sample.member for sample in packed.samples] == [1]
    assert packed.trainable_tokens == 1


def tree(number: int, versions: tuple[int, int, int]) -> Rollout:
    """One shared answer of two tokens, then two branches of one sampled token each."""
    a, b, c = versions

    def sampled(parent: int, ids: list[int], version: int) -> Node:
        return Node(
            parent=parent, sampled=True, token_ids=ids, mask=[1] * len(ids), logprobs=[-1.0] * len(ids),
            segments=[(0, version, 0)],
        )  # fmt: skip

    nodes = [
        Node(token_ids=[1], mask=[0]),
        sampled(0, [10, 11], a),
        Node(parent=1, token_ids=[2], mask=[0]),
        sampled(2, [20], b),
        Node(parent=1, token_ids=[3], mask=[0]),
        sampled(4, [30], c),
    ]
    slot = Slot(group="g", group_size=2, member=number, origin_seed=SEED, origin_offset=0)
    return Rollout(slot, Trajectory.build(nodes, {"reward": float(number)}))


def test_a_node_that_two_branches_share_trains_once() -> None:
    """In the first branch; in the second it is context (design/record#graph)."""
    packed = pack([drawn_group(tree(0, (4, 4, 4)), member(1, [1], [], []))])
    assert packed.input_ids.tolist() == [1, 10, 11, 2, 1, 10, 11, 3]
    assert packed.labels.tolist() == [10, 11, IGNORED, 20, IGNORED, IGNORED, IGNORED, 30]
    assert [sample.leaf for sample in packed.samples] == [3, 5]
    assert packed.position_ids.tolist() == [0, 1, 2, 3] * 2


def test_a_branch_in_which_nothing_trains_isnt_there() -> None:
    packed = pack([drawn_group(tree(0, (4, 4, 0)), member(1, [1], [], []), **MASKED)])
    assert [sample.leaf for sample in packed.samples] == [3]


def test_trained_labels_are_exactly_the_verdicts_tokens() -> None:
    mixed = ([4, 4, 0, 4], [0, 4], [4], [0, 0, 4])
    groups = [drawn_group(rollout(0, versions), rollout(1, [4] * 3), **MASKED) for versions in mixed]
    packed = pack(groups)
    assert packed.trainable_tokens == sum(m.verdict.trainable_tokens for group in groups for m in group.members)


def test_no_groups_make_an_empty_pack() -> None:
    packed = pack([])
    assert (packed.input_ids.shape, packed.versions.shape, packed.longest) == ((0,), (0,), 0)


def test_without_payloads_there_is_nothing_to_pack() -> None:
    group = drawn_group(rollout(0), rollout(1))
    bare = replace(group, members=tuple(replace(m, rollout=None) for m in group.members))
    with pytest.raises(SettingsError, match="without payloads"):
        pack([bare])


def test_an_attempt_at_a_compaction_that_nothing_accepts_is_in_no_sample() -> None:
    """What both branches share trains in the one that went on (design/record#edges)."""
    edges = [{"node": 1, "type": "compaction_attempt"}]

    def turn(parent: int, tokens: list[int], **facts: Any) -> Node:
        return Node(
            parent=parent, sampled=True, token_ids=tokens, mask=[1] * len(tokens), logprobs=[-0.5] * len(tokens),
            segments=[(0, 4, 0)], facts=facts,
        )  # fmt: skip

    nodes = [
        Node(token_ids=[10, 11], mask=[0, 0]),
        turn(0, [20, 21]),
        turn(1, [30, 31, 32], semantic_parents=edges),
        turn(1, [40]),
    ]
    slot = member(0, [1], [], []).slot
    made = Rollout(slot, Trajectory.build(nodes, {"reward": 0.0}))
    packed = pack([drawn_group(made, member(1, [1], [5, 5], [4, 4]))])
    assert packed.samples[0].leaf == 3
    assert packed.cu_seqlens.tolist()[1] == 4
    assert packed.labels.tolist()[:4] == [IGNORED, 20, 21, 40]

    nodes[3].facts = {"semantic_parents": [{"node": 2, "type": "compaction"}]}
    accepted = Rollout(slot, Trajectory.build(nodes, {"reward": 0.0}))
    packed = pack([drawn_group(accepted, member(1, [1], [5, 5], [4, 4]))])
    assert [sample.leaf for sample in packed.samples[:2]] == [2, 3]
    assert packed.labels.tolist()[:6] == [IGNORED, 20, 21, 30, 31, 32]
