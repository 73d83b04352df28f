"""Two runs over one source give the same batches, byte for byte (design/trainer#offline)."""

from __future__ import annotations

import asyncio
import time
from dataclasses import fields

import pytest

pytest.importorskip("torch")

import torch

from rolloutlog.contract.ids import id_of
from rolloutlog.contract.policies import Policy
from rolloutlog.trainer.loop.sync_group_stream import SyncGroupStream
from rolloutlog.trainer.stream.starting import Start
from tests.trainer.desk import rollout
from tests.trainer.log import Log
from tests.trainer.test_offline import offline

pytestmark = pytest.mark.broker
ANY = {"max_staleness": "none"}


def packed(log: Log, pause_s: float) -> list[tuple[bytes, ...]]:
    """The bytes of every tensor of every pack, and where its samples come from; all batches are told, each in its
    time."""
    found: list[tuple[bytes, ...]] = []
    with SyncGroupStream(log.settings, Start(weights="w")) as stream:
        for batch in stream:
            for mini in batch.mini_batches(48, count=2):
                for pack in mini:
                    tensors = [getattr(pack, each.name) for each in fields(pack)]
                    found.append(tuple(t.numpy().tobytes() for t in tensors if isinstance(t, torch.Tensor)))
                    found.append(tuple(repr(sample).encode() for sample in pack.samples))
            time.sleep(pause_s * ((batch.step or 0) % 3))
            batch.trained(publish=lambda: ("w", None))
    return found


def test_two_runs_over_one_source_give_the_same_bytes(log: Log) -> None:
    """Also where the source is larger than what is held at once, so that what was read first decides who comes; and
    whoever reads it."""
    torch.set_num_threads(1)
    asyncio.run(log.publish(*(Policy(0, v) for v in range(6))))
    made = [rollout(m, [i % 4, 4 + m % 2], group=id_of(i)) for i in range(90) for m in range(2)]
    asyncio.run(log.write(*made))
    runs = []
    for order, pause_s, readers in (
        ("arrival", 0.0, 0), ("arrival", 0.1, 1), ("shuffled", 0.1, 2), ("shuffled", 0.0, 0)
    ):  # fmt: skip
        mine = asyncio.run(
            offline(log, batch_groups=8, buffer_groups=12, order=order, max_passes=2, staleness=ANY, readers=readers)
        )
        runs.append(packed(mine, pause_s))
    assert len(runs[0]) > 2 * 2 * 11
    assert runs[0] == runs[1]
    half = len(runs[0]) // 2
    assert runs[0][:half] == runs[0][half:], "and the second pass as the first"
    assert runs[2] == runs[3]
    assert runs[2][:half] != runs[2][half:], "unless it is shuffled"
    assert sorted(runs[2]) != sorted(runs[0])
