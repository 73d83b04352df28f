"""A stream's packs through torch's own DataLoader (design/trainer#dataset)."""

from __future__ import annotations

import asyncio
from multiprocessing import get_context
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from torch.utils.data import DataLoader

from rolloutlog.contract.errors import SettingsError
from rolloutlog.contract.ids import id_of
from rolloutlog.trainer.batches.losses import policy_loss
from rolloutlog.trainer.batches.sampling import Sampling
from rolloutlog.trainer.batches.tensors import PackedBatch
from rolloutlog.trainer.loop.rollout_dataset import RolloutDataset
from rolloutlog.trainer.loop.sync_group_stream import SyncGroupStream
from rolloutlog.trainer.stream.starting import Start
from tests.trainer.log import Log
from tests.trainer.test_stream import group

pytestmark = pytest.mark.broker
ONE = Sampling(temperature=1.0)


def test_a_loop_around_a_loader_trains_whole_steps(log: Log) -> None:
    """As many packs as the budget asks for, and the batch is told once its last one came."""
    torch.set_num_threads(1)
    asyncio.run(log.write(*(made for name in "abcd" for made in group(name))))
    table = torch.nn.Parameter(torch.zeros(16, 16))
    losses: list[float] = []
    with SyncGroupStream(log.settings, Start(weights="w")) as stream:
        dataset = RolloutDataset(stream, max_tokens=6, drain=True, sampling=ONE, vocabulary=16)
        with pytest.raises(SettingsError, match="no pack has come yet"):
            _ = dataset.batch
        packs = 0
        for packed in DataLoader(dataset, batch_size=None):
            assert isinstance(packed, PackedBatch)
            loss = policy_loss(table[packed.input_ids], packed, dataset.batch.denominators)
            loss.backward()
            losses.append(float(loss.detach()))
            packs += 1
            if dataset.step_ends:
                assert packs == 2
                assert table.grad is not None
                dataset.batch.trained(publish=lambda: ("w", None))
                packs = 0
    assert len(losses) == 4
    finals = asyncio.run(log.finals())
    assert sorted(final.step for final in finals) == [1, 1, 2, 2]
    assert {final.group for final in finals} == set(map(id_of, "abcd"))


@pytest.mark.parametrize("how", ["fork", "spawn"])
def test_worker_processes_are_refused_with_what_to_do(log: Log, how: str) -> None:
    """Forked ones when they iterate, others when the dataset would be sent to them; nothing is told."""
    asyncio.run(log.write(*group("a"), *group("b")))
    options: dict[str, Any] = {"num_workers": 2, "multiprocessing_context": get_context(how)}
    with SyncGroupStream(log.settings) as stream:
        dataset = RolloutDataset(stream, max_tokens=64, drain=True)
        with pytest.raises(SettingsError, match="a worker process of a DataLoader"):
            list(DataLoader(dataset, batch_size=None, **options))
        assert next(stream.batches(drain=True)).step == 1, "and it reads on"
    assert asyncio.run(log.finals()) == []
