"""With which weights a trainer begins, as a table (design/live-loop#resuming)."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

from rolloutlog.contract.events.policy_versions import PublishedPolicy, SavedCheckpoint
from rolloutlog.contract.events.watermarks import PartitionMarks
from rolloutlog.contract.policies import Policy
from rolloutlog.trainer.training.beginning import Beginning, beginning

MARKS = PartitionMarks(low=0, seeds=0, events=0)


def published(version: int | None) -> PublishedPolicy | None:
    return None if version is None else PublishedPolicy(Policy(0, version), "file:///weights", None, 0)


def saved(step: int | None) -> SavedCheckpoint | None:
    return None if step is None else SavedCheckpoint(timeline=0, step=step, partitions=(MARKS,), uri="file:///saved")


@pytest.mark.parametrize(
    ("last", "version", "step", "weights", "parts", "is_back"),
    [
        (0, 0, None, 0, None, False),
        (4, 4, None, 4, None, False),
        (5, 4, None, 4, None, True),
        (5, 5, 3, 5, 3, False),
        (5, 4, 5, None, 5, False),
        (5, 5, 5, None, 5, False),
        (5, 4, 4, None, 4, False),
        (5, 4, 3, 4, None, True),
        (5, 2, 3, None, 3, False),
    ],
    ids=[
        "nothing-trained", "published", "older-published", "published-after-a-checkpoint", "checkpoint", "both",
        "older-both", "older-checkpoint", "older-published-than-checkpoint",
    ],
)  # fmt: skip
def test_the_table(
    last: int, version: int, step: int | None, weights: int | None, parts: int | None, is_back: bool
) -> None:
    expected = Beginning(published(weights), saved(parts), is_back)
    assert beginning(last, published(version), saved(step)) == expected
    assert expected.step == (weights if weights is not None else parts)
