"""Columns of a trajectory back on the nodes that they came from.

Guarantees: floats are the shortest text that gives the column's number again, so what was rounded when it was recorded
is written as it was. Leaves out: order and names of a layout's keys.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from rolloutlog.contract.record.trajectory import AGENT, PARENT, SAMPLED, TOKENS, Trajectory

UNSAID = 2
"""In the column `is_content`: the source didn't say."""
LATE = ("advantages", "reference_logprobs", "trainer_logprobs", "entropies")
"""Notes on the response axis that are arrays of nodes in verifiers' own layout."""

Json = dict[str, Any]


def nodes_of(trajectory: Trajectory, notes: Mapping[str, Any]) -> Iterator[Json]:
    """Each node: `parent` (None for a root), `agent`, its arrays, late ones where the node has them, and its facts."""
    content = trajectory.columns.get("is_content")
    facts = cast("list[Json]", trajectory.record["nodes"])
    token, sampled = 0, 0
    for row, fact in zip(trajectory.nodes.tolist(), facts, strict=True):
        tokens, samples = slice(token, token + row[TOKENS]), slice(sampled, sampled + row[SAMPLED])
        token, sampled = tokens.stop, samples.stop
        yield {
            "parent": None if row[PARENT] < 0 else row[PARENT],
            "agent": row[AGENT],
            "token_ids": trajectory.token_ids[tokens],
            "mask": trajectory.mask[tokens].astype(np.bool_),
            "is_content": _said(None if content is None else content.array[tokens]),
            "logprobs": trajectory.logprobs[samples],
            "late": {name: values for name in LATE if (values := _late(notes.get(name), samples)) is not None},
            "facts": fact,
        }


def _said(content: npt.NDArray[Any] | None) -> npt.NDArray[np.bool_] | list[bool]:
    if content is None or bool((content == UNSAID).any()):
        return []
    return content.astype(np.bool_)


def _late(values: Sequence[Any] | None, samples: slice) -> list[float] | None:
    """A node's part of a late stream; None where the node has none."""
    part = list(values or ())[samples]
    return None if not part or None in part else part
