"""Mini-batches: the samples of one optimiser step, where a train step takes several (design/trainer#mini-batches).

Guarantees: in each epoch every sample is in one mini-batch, with its whole group; mini-batches differ by at most one
group; the same table and seed deal alike everywhere. Leaves out: packs (`micro_batches`), and torch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from rolloutlog.contract.errors import SettingsError
from rolloutlog.trainer.batches.samples import SampleTable


def mini_batches(
    table: SampleTable, count: int, *, epochs: int = 1, seed: Sequence[int] | None = None
) -> Iterator[tuple[int, SampleTable]]:
    """The samples of each optimiser step, with the number of its epoch.

    `count` in an epoch, fewer where there are fewer groups. `seed` deals the groups anew in each epoch; None: in the
    order in which they were drawn, so the same each time. Raises SettingsError.
    """
    if count < 1 or epochs < 1:
        raise SettingsError(f"{count} mini-batches in {epochs} epochs: there is at least one of each")
    groups = np.unique(table.group)
    for epoch in range(epochs):
        order = groups if seed is None else np.random.default_rng([*seed, epoch]).permutation(groups)
        for part in np.array_split(order, min(count, len(groups))) if len(groups) else ():
            yield epoch, table.only(np.flatnonzero(np.isin(table.group, part)))
