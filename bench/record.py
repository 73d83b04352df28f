"""The record that is measured: one rollout of 1,520 tokens, as a worker publishes it.

Guarantees: 220 prompt and 1,300 response tokens with full-precision log-probs, sampled by two policies; the same record
in every run for a slot, and other tokens for every slot: records that repeat each other compress to nothing in a
batch, which no rollouts do. Leaves out: any claim that it is a typical rollout.
"""

from __future__ import annotations

import numpy as np

from rolloutlog.contract.policies import Policy
from rolloutlog.contract.record.node import Node
from rolloutlog.contract.record.rollout import Rollout
from rolloutlog.contract.record.segments import from_versions
from rolloutlog.contract.record.slot import Slot
from rolloutlog.contract.record.trajectory import Trajectory

PROMPT, RESPONSE, SWITCH = 220, 1_300, 800
NOW = 1_790_000_000_000
SOURCE = "/bench"


def rollout(group: str = "be7c" * 8, member: int = 0, reward: float = 0.625) -> Rollout:
    """The record, for that slot of a group of 8."""
    random = np.random.default_rng([int(group, 16), member])
    versions = [Policy(0, 41)] * SWITCH + [Policy(0, 42)] * (RESPONSE - SWITCH)
    text = " ".join(["so the next step follows from the last one"] * 24)
    nodes = [
        Node(
            message={"role": "user", "content": text[:600]},
            token_ids=random.integers(0, 150_000, PROMPT, np.int32),
            mask=np.zeros(PROMPT, np.uint8),
        ),
        Node(
            message={"role": "assistant", "content": text},
            parent=0,
            sampled=True,
            token_ids=random.integers(0, 150_000, RESPONSE, np.int32),
            mask=np.ones(RESPONSE, np.uint8),
            logprobs=-random.exponential(0.7, RESPONSE).astype(np.float32),
            segments=from_versions(versions),
            facts={"temperature": 1.0, "top_p": 1.0, "logprob_kind": "processed"},
        ),
    ]
    slot = Slot(
        group=group, group_size=8, member=member, run="bench", env="sums", origin_seed="5eed" * 8, origin_offset=1
    )
    facts = {"reward": reward, "stop_condition": "stop", "task": {"prompt": text[:300]}}
    return Rollout(slot, Trajectory.build(nodes, facts))
