"""Trainable tokens are labels: a sampled token with nothing before it is none (design/staleness#labels)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("torch")

from rolloutlog.contract.record.node import Node
from rolloutlog.contract.record.rollout import Rollout
from rolloutlog.contract.record.slot import Slot
from rolloutlog.contract.record.trajectory import AGENT, Trajectory
from rolloutlog.contract.wire.json_text import write
from rolloutlog.trainer.batches.tensors import IGNORED, pack
from rolloutlog.trainer.staleness.labels import unlabelled
from tests.cases.strategies import trajectories
from tests.trainer.desk import SEED, rollout, staleness
from tests.trainer.drawing import drawn_group

SLOT = Slot(group="g", group_size=2, member=0, origin_seed=SEED, origin_offset=0)
MASKED = staleness(
    max_staleness=None, max_token_staleness=20, on_expire="keep-as-baseline", on_unknown="exempt", abandoned="drop"
)


def sampled(parent: int, *tokens: int) -> Node:
    return Node(
        parent=parent, sampled=True, token_ids=list(tokens), mask=[1] * len(tokens), logprobs=[-0.5] * len(tokens),
        segments=[(0, 4, 0)],
    )  # fmt: skip


def said(parent: int, *tokens: int) -> Node:
    return Node(parent=parent, token_ids=list(tokens), mask=[0] * len(tokens))


@pytest.mark.parametrize(
    ("nodes", "first"),
    [
        ([said(-1, 1), sampled(0, 2, 3)], []),
        ([sampled(-1, 2, 3)], [0]),
        ([said(-1), sampled(0, 2, 3)], [0]),
        ([said(-1), said(0), sampled(1, 2), sampled(2, 3)], [0]),
        ([said(-1, 1), sampled(0, 2, 3), sampled(-1, 4), sampled(2, 5)], [2]),
        ([said(-1), sampled(0, 2, 3), sampled(0, 4)], [0, 2]),
        ([], []),
    ],
)
def test_only_the_first_token_of_a_branch_has_nothing_before_it(nodes: Sequence[Node], first: list[int]) -> None:
    """On the response axis; nodes without tokens are no context."""
    assert unlabelled(Trajectory.build(nodes)).tolist() == first


def test_a_response_without_a_prompt_trains_all_but_its_first_token() -> None:
    """In verdict, event, mask and labels alike."""
    bare = Rollout(SLOT, Trajectory.build([sampled(-1, 2, 3, 4)], {"reward": 0.0}))
    group = drawn_group(bare, rollout(1))
    first = group.members[0]
    assert (first.verdict.trainable_tokens, first.mask.tolist()) == (2, [False, True, True])
    assert group.final.members[0].trainable_tokens == 2
    assert pack([group]).labels.tolist()[:2] == [3, 4]


@given(trajectories(), st.lists(st.booleans(), min_size=3, max_size=3), st.data())
def test_labels_are_exactly_what_the_final_event_counts(
    drawn: Trajectory, trains: list[bool], data: st.DataObject
) -> None:
    """Any forest, several roots and branches, agents that don't train and masks of the producer's own."""
    agents = data.draw(st.lists(st.integers(0, 2), min_size=len(drawn.nodes), max_size=len(drawn.nodes)))
    drawn.nodes[:, AGENT] = np.array(agents, np.int32).reshape(-1)
    drawn.record["agents"] = [{"name": str(i), "trainable": train, "reward": None} for i, train in enumerate(trains)]
    drawn.record["reward"] = 0.0
    drawn.record_text = write(drawn.record)
    group = drawn_group(Rollout(SLOT, drawn), rollout(1, 30), step=40, **MASKED)
    packed = pack([group])
    counted = sum(member.trainable_tokens for member in group.final.members)
    assert int((packed.labels != IGNORED).sum()) == packed.trainable_tokens == counted
    assert counted == sum(int(member.mask.sum()) for member in group.members)
