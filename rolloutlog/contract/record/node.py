"""One node of a rollout's message graph, as a producer writes it (design/record#graph; the shape of the verifiers v1
trace).

Guarantees: nothing beyond its fields; lengths are checked when a trajectory is built. Leaves out: the columnar form
that travels (`trajectory`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from rolloutlog.contract.record.graph import NO_PARENT
from rolloutlog.contract.record.segments import Segment

Message = dict[str, Any]
Tokens = Sequence[int] | npt.NDArray[np.int32]
Logprobs = Sequence[float] | npt.NDArray[np.float32]
Mask = Sequence[bool] | Sequence[int] | npt.NDArray[np.uint8]


@dataclass(slots=True, kw_only=True)
class Node:
    """A message and its tokens.

    `token_ids` and `mask` are parallel; `logprobs` is compact, one per true of `mask`; `segments` are
    `(timeline, version, offset)` whose offsets count sampled tokens of this node. `facts` holds what else is known of a
    sampled node: temperature, top_p, top_k, logprob_kind (processed or raw), and what a source recorded.
    """

    message: Message | None = None
    parent: int = NO_PARENT
    sampled: bool = False
    token_ids: Tokens = ()
    mask: Mask = ()
    logprobs: Logprobs = ()
    segments: Sequence[Segment] = ()
    agent: int = 0
    facts: dict[str, Any] = field(default_factory=dict[str, Any])
