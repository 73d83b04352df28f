"""Batches at hand: forests of any shape, and packs of them by the plainest code there is.

Guarantees: `plain` looks at one token after another. Leaves out: Kafka.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

from hypothesis import strategies as st

from rolloutlog.contract.record.node import Node
from rolloutlog.contract.record.rollout import Rollout
from rolloutlog.contract.record.slot import Slot
from rolloutlog.contract.record.trajectory import Trajectory
from rolloutlog.trainer.batches.advantages import group_advantages
from rolloutlog.trainer.batches.sample_rows import IGNORED
from rolloutlog.trainer.dispatch.batch import DrawnGroup
from tests.trainer.desk import SEED
from tests.trainer.drawing import drawn_group

Row = tuple[int, int, float, float, int, int, float]
"""Input id, label, log-prob, advantage, timeline, version and temperature of one token."""


@st.composite
def nodes(draw: st.DrawFn) -> list[Node]:
    """A forest of up to seven nodes; sampled ones of several policies, some with tool tokens between."""
    made: list[Node] = []
    for number in range(draw(st.integers(1, 7))):
        parent = draw(st.integers(-1, number - 1))
        mask = draw(st.lists(st.integers(0, 1), max_size=4))
        count = sum(mask)
        versions = draw(st.lists(st.integers(0, 4), min_size=count, max_size=count))
        changes = [i for i in range(count) if i == 0 or versions[i] != versions[i - 1]]
        facts: dict[str, Any] = {"temperature": draw(st.sampled_from([0.5, 1.0]))} if count and number % 2 else {}
        made.append(
            Node(
                parent=parent, sampled=count > 0, token_ids=[100 * number + i for i in range(len(mask))], mask=mask,
                logprobs=[-0.5 - i for i in range(count)], segments=[(0, versions[i], i) for i in changes], facts=facts,
            )
        )  # fmt: skip
    return made


def group_of(forests: list[list[Node]], **settings: Any) -> DrawnGroup:
    """A group of members with these graphs, and one that surely trains; rewards are their numbers."""
    forests = [*forests, [Node(token_ids=[7], mask=[0]), _answer()]]
    slots = [
        Slot(group="g", group_size=len(forests), member=i, origin_seed=SEED, origin_offset=0)
        for i in range(len(forests))
    ]
    return drawn_group(
        *(Rollout(slot, Trajectory.build(forest, {"reward": float(slot.member)}))
          for slot, forest in zip(slots, forests, strict=True)),
        **settings,
    )  # fmt: skip


def _answer() -> Node:
    return Node(parent=0, sampled=True, token_ids=[8, 9], mask=[1, 1], logprobs=[-0.1, -0.2], segments=[(0, 4, 0)])


def plain(group: DrawnGroup) -> list[list[Row]]:
    """The samples of a group, token by token."""
    made: list[list[Row]] = []
    advantages = group_advantages(group)
    for member in group.members:
        assert member.rollout is not None
        trajectory, trained, number = member.rollout.trajectory, member.mask.tolist(), 0
        tokens: list[list[tuple[int, bool, float, int, int]]] = []
        policies = [
            (int(t), int(v))
            for t, v, n in zip(
                trajectory.runs.timelines, trajectory.runs.versions, trajectory.runs.lengths, strict=True
            )
            for _ in range(int(n))
        ]
        at = 0
        for _, count, *_ in trajectory.nodes.tolist():
            tokens.append([])
            for i in range(at, at + count):
                token = int(trajectory.token_ids[i])
                if trajectory.mask[i]:
                    logprob = float(trajectory.logprobs[number])
                    tokens[-1].append((token, trained[number], logprob, *policies[number]))
                    number += 1
                else:
                    tokens[-1].append((token, False, 0.0, -1, -1))
            at += count
        done: set[tuple[int, int]] = set()
        for path in trajectory.branches:
            places = [(node, i) for node in path for i in range(len(tokens[node]))]
            sample: list[Row] = []
            for before, here in pairwise(places):
                token, trains, logprob, timeline, version = tokens[here[0]][here[1]]
                new = trains and here not in done
                temperature = trajectory.record["nodes"][here[0]].get("temperature", math.nan)
                sample.append((
                    tokens[before[0]][before[1]][0], token if new else IGNORED, logprob,
                    advantages[member.member, 0] if new else 0.0, timeline, version, temperature,
                ))  # fmt: skip
                done |= {here} if new else set()
            if any(row[1] != IGNORED for row in sample):
                made.append(sample)
    return made
