"""Whether an answer was cut by a limit, as its record says it (design/record#truncated).

Guarantees: one answer for the trainer's rule, its packs and whoever looks, held by `test_what_counts_as_cut`; the text
of a record that names no limit isn't parsed for it. Leaves out: what follows from it
(`rolloutlog.trainer.staleness.rule`).
"""

from __future__ import annotations

import re

from rolloutlog.contract.record.trajectory import Trajectory

LIMITS = (
    "length", "max_tokens", "truncated", "context_length", "max_input_tokens", "max_output_tokens", "max_total_tokens",
)  # fmt: skip
"""Stop conditions that are limits of tokens."""
_MAY_SAY = re.compile(
    rb'"is_truncated"\s*:\s*true|"stop_condition"\s*:\s*"(?:' + "|".join(LIMITS).encode() + rb')"|\\u'
)
"""An escape may be any letter."""


def is_cut(trajectory: Trajectory) -> bool:
    """True where the record says `is_truncated`, or stopped at a limit of tokens."""
    if _MAY_SAY.search(trajectory.record_text) is None:
        return False
    record = trajectory.record
    return record.get("is_truncated") is True or record.get("stop_condition") in LIMITS
