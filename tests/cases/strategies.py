"""Hypothesis strategies for sound rollouts of any shape, which other tests build on.

Guarantees: everything drawn passes every check, so a test that meets a rejection has found a fault. Leaves out: bad
records (`bad_inputs`).

    @given(trajectories())
    def test_...(trajectory: Trajectory) -> None: ...
"""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from rolloutlog.contract.handles import Handle
from rolloutlog.contract.numbers import LARGEST
from rolloutlog.contract.policies import Policy
from rolloutlog.contract.record.graph import NO_PARENT
from rolloutlog.contract.record.node import Node
from rolloutlog.contract.record.rollout import Rollout
from rolloutlog.contract.record.segments import Segment, from_versions
from rolloutlog.contract.record.slot import Slot
from rolloutlog.contract.record.trajectory import Column, Trajectory
from rolloutlog.contract.vocabulary import Grain, RunKind, SeedKind, Status
from rolloutlog.contract.wire.headers import FIELDS

words = st.text(st.characters(exclude_categories=("Cs", "Cc")), min_size=1, max_size=12)
"""Text of a header: not empty, no half characters."""

ids = st.binary(min_size=16, max_size=16).map(bytes.hex)
policies = st.builds(Policy, st.integers(0, 3), st.integers(0, 30))
handles = st.builds(
    Handle, st.integers(0, 99), st.integers(0, 2**40), st.integers(0, 2**31), st.sampled_from(["", "last-week"])
)
token_ids = st.integers(0, 2**31 - 1)
logprobs = st.floats(max_value=0, allow_infinity=False, allow_nan=False, width=32)
rewards = st.floats(-LARGEST, LARGEST) | st.floats(width=32, allow_infinity=False, allow_nan=False)
messages = st.fixed_dictionaries({"role": st.sampled_from(["system", "user", "assistant", "tool"]), "content": words})


@st.composite
def segments(draw: st.DrawFn, tokens: int) -> list[Segment]:
    """Segments that tile a node of `tokens` sampled tokens, of one to four policies."""
    if not tokens:
        return []
    pool = draw(st.lists(policies, min_size=1, max_size=4, unique=True))
    return from_versions(draw(st.lists(st.sampled_from(pool), min_size=tokens, max_size=tokens)))


@st.composite
def nodes(draw: st.DrawFn, index: int, known: bool) -> Node:
    """Node number `index` of a graph, its parent before it; `known` says whether policies were recorded."""
    sampled = draw(st.booleans())
    ids_ = draw(st.lists(token_ids, max_size=8))
    mask = draw(st.lists(st.booleans(), min_size=len(ids_), max_size=len(ids_))) if sampled else [False] * len(ids_)
    trues = sum(mask)
    return Node(
        message=draw(st.none() | messages),
        parent=draw(st.integers(NO_PARENT, index - 1)),
        sampled=sampled,
        token_ids=ids_,
        mask=mask,
        logprobs=draw(st.lists(logprobs, min_size=trues, max_size=trues)),
        segments=draw(segments(trues)) if known else [],
        facts=draw(st.just({}) | st.just({"temperature": 1.0, "logprob_kind": "raw"})),
    )


@st.composite
def columns(draw: st.DrawFn, tokens: int, sampled: int) -> dict[str, Column]:
    """Optional columns, each parallel to the axis that it names."""
    made: dict[str, Column] = {}
    if draw(st.booleans()):
        made["loss_mask"] = Column(
            np.asarray(draw(st.lists(st.booleans(), min_size=sampled, max_size=sampled)), np.uint8), "sampled"
        )
    if draw(st.booleans()):
        made["routed_experts"] = Column(draw(hnp.arrays(np.int16, (tokens, 2))), "token")
    if draw(st.booleans()):
        dtype = draw(st.sampled_from([np.float64, np.float16, np.int64, np.uint8]))
        made["notes"] = Column(
            draw(
                hnp.arrays(
                    dtype,
                    hnp.array_shapes(max_dims=3, max_side=3),
                    elements={"allow_nan": False, "allow_infinity": False} if np.dtype(dtype).kind == "f" else None,
                )
            ),
            "opaque",
        )
    return made


@st.composite
def trajectories(draw: st.DrawFn, *, optional: bool = True) -> Trajectory:
    """Any sound trajectory; `optional` allows optional columns."""
    known = draw(st.booleans())
    graph = [draw(nodes(index, known)) for index in range(draw(st.integers(0, 5)))]
    record: dict[str, Any] = {"reward": draw(st.none() | rewards)}
    if draw(st.booleans()):
        record |= {"stop_condition": draw(words), "task": {"prompt": draw(words)}, "errors": []}
    if not known:
        record["grain"] = Grain.NONE
    made = Trajectory.build(graph, record)
    if optional:
        made.columns |= draw(columns(len(made.token_ids), len(made.logprobs)))
    return made


@st.composite
def slots(draw: st.DrawFn) -> Slot:
    """Any slot of a group, derived, imported or fresh."""
    size = draw(st.integers(1, 16))
    return Slot(
        group=draw(ids), group_size=size, member=draw(st.integers(0, size - 1)), attempt=draw(st.integers(1, 9)),
        group_train=draw(st.none() | st.integers(1, size)), kind=draw(st.sampled_from(RunKind)),
        run=draw(st.none() | words), env=draw(st.none() | words), derivation=draw(st.none() | words),
        origin_seed=draw(st.none() | ids), origin_offset=draw(st.none() | st.integers(0, 2**40)),
        seed_kind=draw(st.none() | st.sampled_from(SeedKind)), trace=draw(st.none() | ids),
        source_id=draw(st.none() | ids),
        source_handle=draw(st.none() | handles), depth=draw(st.none() | st.integers(0, 9)),
        dispatch_step=draw(st.none() | st.integers(0, 2**40)), filtered=draw(st.none() | st.booleans()),
    )  # fmt: skip


@st.composite
def rollouts(draw: st.DrawFn, *, optional: bool = True) -> Rollout:
    """Any sound rollout, of any status."""
    return Rollout(draw(slots()), draw(trajectories(optional=optional)), draw(st.sampled_from(Status)))


_COUNTS = st.integers(0, 2**63 - 1)
_OF_KIND: dict[str, st.SearchStrategy[Any]] = {
    "text": words, "RFC 3339 time": words, "media type": words, "SHA-256, hex": words, "milliseconds": _COUNTS,
    "integer": _COUNTS, "number": rewards, "true or false": st.booleans(), "timeline:version": policies,
    "partition/offset/size": handles, "train or eval": st.sampled_from(RunKind),
    "completed, aborted or failed": st.sampled_from(Status), "token, episode or none": st.sampled_from(Grain),
    "seed kind": st.sampled_from(SeedKind),
}  # fmt: skip

header_values: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {}, optional={name: _OF_KIND[field.kind] for name, field in FIELDS.items()}
)
"""Any subset of the table of headers, with values of the right kind, by attribute name."""
