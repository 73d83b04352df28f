"""What each rank gets of one optimiser step: its packs, and what all ranks divide by (design/trainer#mini-batches).

Guarantees: the packs of all ranks hold each sample once, and as many for each rank; denominators are of all of them,
after what was cut; a step in which nothing trains is refused. Leaves out: which samples the step has (`mini_batches`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from rolloutlog.contract.errors import SettingsError
from rolloutlog.trainer.batches.column_memory import ColumnMemory
from rolloutlog.trainer.batches.losses import Denominators
from rolloutlog.trainer.batches.micro_batches import Overlong, micro_batches
from rolloutlog.trainer.batches.samples import SampleTable
from rolloutlog.trainer.batches.tensors import PackedBatch


@dataclass(slots=True, frozen=True)
class MiniBatch:
    """One rank's share of an optimiser step: iterate over its packs, divide by `denominators`, step once."""

    packs: list[PackedBatch]
    denominators: Denominators
    epoch: int = 0

    def __iter__(self) -> Iterator[PackedBatch]:
        """Its packs."""
        return iter(self.packs)


def nothing() -> MiniBatch:
    """What a rank gets where all groups were left out."""
    return MiniBatch([], Denominators(0, 0))


def rank_shares(
    table: SampleTable,
    max_tokens: int,
    *,
    ranks: int = 1,
    overlong: Overlong = "error",
    epoch: int = 0,
    memory: ColumnMemory | None = None,
) -> list[MiniBatch]:
    """The share of each rank; packs lie in that memory. Raises SampleUnusable, and SettingsError where no label is
    left."""
    dealt = micro_batches(table, max_tokens, ranks=ranks, overlong=overlong)
    every = Denominators(0, 0)
    for one in (one for share in dealt for one in share):
        every += Denominators.of(one)
    if not every.tokens:
        raise SettingsError(
            f"no token of these {len(table.samples)} samples is in the loss, so there is nothing to step on",
            "raise max_tokens if overlong='truncate' has cut them; else drop the groups, `trained(without=...)`",
        )
    return [MiniBatch(PackedBatch.each(share, memory), every, epoch) for share in dealt]
