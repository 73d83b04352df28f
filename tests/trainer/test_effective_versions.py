"""Which version a token counts as once its timeline was left (design/record#effective-version)."""

from __future__ import annotations

import numpy as np
import pytest

from rolloutlog.contract.policies import History, Policy
from rolloutlog.contract.record.segments import Runs
from rolloutlog.trainer.staleness.rule import UNKNOWN_VERSION, effective_versions
from tests.contract.test_policies import BACK_FURTHER, RESUMED, TWICE, UNRELATED, history


@pytest.mark.parametrize(
    ("past", "policy", "effective"),
    [
        (history((0, None, 0)), Policy(0, 7), (7, False)),
        (RESUMED, Policy(0, 9), (9, False)),
        (RESUMED, Policy(0, 10), (10, False)),
        (RESUMED, Policy(0, 11), (10, True)),
        (RESUMED, Policy(1, 11), (11, False)),
        (TWICE, Policy(0, 12), (10, True)),
        (TWICE, Policy(1, 14), (14, False)),
        (TWICE, Policy(1, 15), (14, True)),
        (BACK_FURTHER, Policy(0, 6), (6, False)),
        (BACK_FURTHER, Policy(0, 8), (6, True)),
        (BACK_FURTHER, Policy(1, 5), (5, False)),
        (BACK_FURTHER, Policy(1, 12), (6, True)),
        (history((0, None, 0), (1, 0, 4), (2, 0, 9)), Policy(1, 7), (4, True)),
        (UNRELATED, Policy(0, 3), (UNKNOWN_VERSION, False)),
        (RESUMED, Policy(5, 0), (UNKNOWN_VERSION, False)),
    ],
)
def test_the_effective_version_is_that_of_the_shared_history(
    past: History, policy: Policy, effective: tuple[int, bool]
) -> None:
    """Two timelines share history up to the lowest fork step between them; above it a token is abandoned."""
    runs = Runs(np.array([policy.timeline], np.int32), np.array([policy.version], np.int32), np.array([1]))
    (version,), (abandoned,) = effective_versions(runs, past)
    assert (version, abandoned) == effective
