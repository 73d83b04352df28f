"""Groups that a training loop leaves out, as its batch tells them (design/trainer#left-out)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

pytest.importorskip("torch")

from rolloutlog.trainer.batches.sampling import Sampling
from rolloutlog.trainer.dispatch.batch import Batch, LeftOut
from rolloutlog.trainer.loop.job_ranks import Alone
from rolloutlog.trainer.loop.training_batch import TrainingBatch
from rolloutlog.trainer.steps.step_report import StepReport
from tests.trainer.desk import rollout
from tests.trainer.drawing import drawn_group

TEMPERED = Sampling(temperature=1.0)


def lent(told: list[Mapping[str, LeftOut]]) -> TrainingBatch:
    """Groups of 3 and of 5 rows a sample; what is left out of it is `told`."""
    groups = [
        drawn_group(*(rollout(i, [4] * size, group=group) for i in range(2))) for group, size in (("g", 2), ("h", 4))
    ]

    def tell(batch: Batch, *, without: Mapping[str, LeftOut] | None, **_: Any) -> StepReport:
        told.append(without or {})
        raise NotImplementedError

    return TrainingBatch(5, Batch(5, tuple(groups)), Alone(), tell, publishes=False)


def test_what_the_last_packs_left_out_counts() -> None:
    """A first try with limits that are too low says nothing of what is trained in the end."""
    told = list[Mapping[str, LeftOut]]()
    batch = lent(told)
    assert len(batch.packs(3, sampling=TEMPERED, leave_out="some")) < len(
        batch.packs(5, sampling=TEMPERED, leave_out="some")
    )
    assert dict(batch.left_out) == {}
    batch.packs(3, sampling=TEMPERED, leave_out="some")
    assert [*batch.left_out] == ["h"]
    with pytest.raises(NotImplementedError):
        batch.trained()
    assert [*told[0]] == ["h"]
