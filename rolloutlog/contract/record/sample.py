"""What one call of an engine sampled.

Guarantees: nothing beyond its fields. Leaves out: engines, which make it, and environments, which make nodes of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from rolloutlog.contract.record.segments import Segment

ABORT = "abort"
"""Why a sample ended that its engine stopped for other weights: it may be gone on with."""


@dataclass(slots=True)
class Sample:
    """Ids and log-probs are parallel, segments `(timeline, version, offset)` tile them."""

    token_ids: npt.NDArray[np.int32]
    logprobs: npt.NDArray[np.float32]
    segments: Sequence[Segment]
    text: str
    stop: str
    """Why it ended, such as stop, length, or abort."""
