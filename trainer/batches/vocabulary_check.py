"""Token ids against the size of a vocabulary (design/trainer#micro-batches).

Guarantees: an id outside it is told before a model sees it, context tokens too: an embedding would fail on a GPU
without saying where. Leaves out: who knows the size, which the loop says.
"""

from __future__ import annotations

import numpy as np

from rolloutlog.trainer.batches.sample_errors import unusable
from rolloutlog.trainer.batches.samples import SampleTable


def check_vocabulary(table: SampleTable, size: int) -> None:
    """Raises SampleUnusable for the first sample with a token outside a vocabulary of `size`."""
    columns = table.columns
    inputs, labels = columns["input_ids"], columns["labels"]
    outside = np.flatnonzero((inputs >= size) | (labels >= size))
    if not len(outside):
        return
    row = int(outside[0])
    sample = int(np.searchsorted(table.starts, row, side="right")) - 1
    ahead = int(inputs[row] < size)  # a label is the next token of its sequence
    token, position = (labels if ahead else inputs)[row], row - table.starts[sample] + ahead
    raise unusable(
        table.samples[sample],
        f"token {token} at position {position} is outside a vocabulary of {size}",
        "was it sampled with another tokenizer? `trained(without=...)` drops its group, and so does a filter",
    )
