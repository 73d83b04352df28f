"""Memory of packs (design/trainer#tensors)."""

from __future__ import annotations

from dataclasses import fields

import numpy as np
import pytest

pytest.importorskip("torch")

import torch
from hypothesis import given
from hypothesis import strategies as st

from rolloutlog.trainer.batches.column_memory import WORTH, ColumnMemory
from rolloutlog.trainer.batches.samples import SampleTable, samples_of
from rolloutlog.trainer.batches.tensors import ROW_BYTES, PackedBatch
from tests.trainer.desk import rollout
from tests.trainer.drawing import drawn_group

TOKENS = WORTH // ROW_BYTES // 2


def table(version: int) -> SampleTable:
    """Two samples that are worth memory of their own."""
    return samples_of([drawn_group(*(rollout(i, [version] * TOKENS) for i in range(2)), step=5)])


def tensors(packs: list[PackedBatch]) -> list[torch.Tensor]:
    made = [getattr(pack, each.name) for pack in packs for each in fields(pack)]
    return [one for one in made if isinstance(one, torch.Tensor)]


def test_packs_lie_in_memory_that_is_used_again_once_nothing_is_left_of_them() -> None:
    memory, made = ColumnMemory(), table(4)
    packs = PackedBatch.each([made.only([0]), made.only([1])], memory)
    place = packs[0].labels.data_ptr()
    del packs
    assert PackedBatch.each([made], memory)[0].labels.data_ptr() == place


def test_packs_that_are_kept_stay_what_they_are() -> None:
    """One tensor is enough, whichever, and a view of one; as a loop has its last pack when it asks for more."""
    memory, made, other = ColumnMemory(), table(4), table(3)
    kept: list[tuple[torch.Tensor, bytes]] = []
    for number in range(len(tensors([PackedBatch.of(made)]))):
        one = tensors(PackedBatch.each([made], memory))[number][1:]
        kept.append((one, one.numpy().tobytes()))
        PackedBatch.each([other], memory)
        assert all(one.numpy().tobytes() == before for one, before in kept)


def test_packs_in_one_memory_are_those_that_have_their_own() -> None:
    """To the bit, over samples of many lengths; and each holds no more than its own when it is sent."""
    made = samples_of([drawn_group(*(rollout(i, [4] * (TOKENS - 7 * i), size=4) for i in range(4)))])
    parts = [made.only([3, 0]), made.only([]), made.only([1]), made.only([2])]
    together, apart = PackedBatch.each(parts, ColumnMemory()), [PackedBatch.of(part) for part in parts]
    for one, other in zip(tensors(together), tensors(apart), strict=True):
        assert one.dtype == other.dtype
        assert one.numpy().tobytes() == other.numpy().tobytes()
        assert one.untyped_storage().nbytes() == other.untyped_storage().nbytes()


@given(st.lists(st.tuples(st.integers(0, 60_000), st.sampled_from([np.int64, np.float32, np.uint8])), max_size=20))
def test_columns_never_overlap(wanted: list[tuple[int, type[np.generic]]]) -> None:
    """Whatever is asked for, and however much more than there was said to be."""
    room = ColumnMemory().room(WORTH)
    made = [room.empty(*one) for one in wanted]
    for number, one in enumerate(made):
        one.fill(number)
    for number, (one, (count, kind)) in enumerate(zip(made, wanted, strict=True)):
        assert (len(one), one.dtype) == (count, kind)
        assert (one == number).all()
