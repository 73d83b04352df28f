"""One rank of a training job: `python rank_process.py RANK SIZE MEETING MODE SETTINGS`; a line of JSON a step.

MODE: `train` all that is there; `die` ends rank 1 after the first batch; `fail` lets rank 0's packs fail; `disagree`
tells another step on rank 1; `minis`
says the mini-batches of each step before.
"""

from __future__ import annotations

import json
import os
import sys
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

from rolloutlog import CheckpointFolder
from rolloutlog.contract.settings import Settings
from rolloutlog.trainer.batches.sample_rows import IGNORED
from rolloutlog.trainer.batches.sampling import Sampling
from rolloutlog.trainer.loop.sync_group_stream import SyncGroupStream
from rolloutlog.trainer.stream.starting import Start


def main() -> None:
    rank, size, meeting, mode = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4]
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{meeting}", rank=rank, world_size=size, timeout=timedelta(seconds=20)
    )
    settings = Settings.model_validate_json(sys.argv[5])
    if mode == "resume":
        resume(settings, Path(meeting).parent, rank)
    else:
        train(settings, rank, mode)
    print(json.dumps({"ended": True}), flush=True)
    dist.destroy_process_group()  # else its threads may be there still when the interpreter ends, which then aborts


def resume(settings: Settings, folder: Path, rank: int) -> None:
    """A model that counts steps, and random numbers of each rank's own; three ranks save it after the last step."""
    later = dist.get_world_size() > 2
    model = torch.nn.Linear(1, 1, bias=False)
    torch.nn.init.zeros_(model.weight)
    torch.manual_seed(rank + 10 * dist.get_world_size())
    checkpoints = CheckpointFolder(folder / "checkpoints", model=model)
    with SyncGroupStream(settings, Start(resume=checkpoints)) as stream:
        checkpoints.load(stream)
        print(json.dumps({"weight": model.weight.item(), "random": torch.rand(1).item()}), flush=True)
        for batch in stream.batches(drain=True):
            batch.packs(16, sampling=Sampling(temperature=1.0))
            torch.nn.init.constant_(model.weight, model.weight.item() + 1)
            save = None if later else lambda batch=batch: checkpoints.save(stream, batch)
            batch.trained(publish=lambda: ("s3://w", None), checkpoint=save)
        if later:
            stream.saved(checkpoint=lambda: checkpoints.save(stream))
    print(json.dumps({"weight": model.weight.item(), "random": torch.rand(1).item()}), flush=True)


def train(settings: Settings, rank: int, mode: str) -> None:
    with SyncGroupStream(settings) as stream:
        for batch in stream.batches(drain=True):
            minis = [] if mode != "minis" else [*batch.mini_batches(16, count=2, epochs=2, seed=7)]
            for mini in minis:
                labels = sum(int((pack.labels != IGNORED).sum()) for pack in mini)
                names = sorted({s.group for pack in mini for s in pack.samples})
                about = {"epoch": mini.epoch, "packs": len(mini.packs), "tokens": mini.denominators.tokens}
                print(json.dumps(about | {"labels": labels, "groups": names}), flush=True)
            most, leave_out = (0, "none") if mode == "fail" else (16, "some")
            packs = batch.packs(most, sampling=Sampling(temperature=1.0), leave_out=leave_out)
            labels = [int((pack.labels != IGNORED).sum()) for pack in packs]
            total = torch.tensor([float(sum(labels))])
            dist.all_reduce(total)
            said = {
                "step": batch.step, "packs": len(packs), "labels": sum(labels), "total": total.item(),
                "tokens": batch.denominators.tokens, "sequences": batch.denominators.sequences,
                "samples": [(s.group, s.member) for pack in packs for s, n in
                            zip(pack.samples, pack.cu_seqlens.diff().tolist(), strict=True) if n],
                "unlabelled": sum(n == 0 for n in labels),
            }  # fmt: skip
            print(json.dumps(said), flush=True)
            if mode == "die" and rank == 1:
                os._exit(9)
            if mode == "disagree" and rank == 1:
                batch.step = 77
            batch.trained(publish=lambda: (f"file:///by-rank-{rank}", None))


if __name__ == "__main__":
    main()
