"""Trainers that learn, each a fork of one warm process: `python learning_process.py`, a line of JSON each on stdin.

A line has `settings`, `folder`, `steps`, and `fatal`, the point at which it is killed, or null. The answer is a line of
JSON: how it ended (0, or -9), the points that it passed, a digest of its model and optimizer after its last step, and,
where it is `measured`, its loss over all that it trained, by the weights that it began and that it ended with.

Guarantees: what a trainer computes is a function of the groups alone, and of its random numbers, which it draws at each
step. Leaves out: workers.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from pathlib import Path
from typing import Any

import torch

from rolloutlog import CheckpointFolder, Settings, Start, SyncGroupStream, policy_loss
from rolloutlog.contract.policies import Policy
from rolloutlog.policy.transformer import CausalTransformer, ModelShape
from rolloutlog.policy.weights import save_weights
from rolloutlog.trainer.batches.losses import Denominators, label_logprobs
from rolloutlog.trainer.batches.sampling import Sampling
from rolloutlog.trainer.batches.tensors import PackedBatch
from tests.trainer.kill_points import KillPoints
from tests.trainer.recorded_groups import CONTEXT, VOCABULARY

SHAPE = ModelShape(vocabulary=VOCABULARY, context=CONTEXT, width=16, layers=1, heads=2)
Trained = list[tuple[PackedBatch, Denominators]]


class Learner:
    """A small transformer under AdamW."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.model = CausalTransformer(SHAPE)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.01)

    def logits(self, packed: PackedBatch) -> torch.Tensor:
        return self.model(packed.input_ids, packed.position_ids, packed.cu_seqlens)

    def step(self, packs: list[PackedBatch], denominators: Denominators) -> None:
        for packed in packs:
            logits = self.logits(packed)
            now = label_logprobs(logits, packed).detach()
            policy_loss(logits, packed, denominators, proximal=now).backward()
        for weight in self.model.parameters():
            if weight.grad is not None:
                weight.grad += torch.randn_like(weight.grad) * 1e-5
        self.optimizer.step()
        self.optimizer.zero_grad()

    def digest(self) -> str:
        """Of all that it is."""
        found = hashlib.sha256()
        tensors = [*self.model.state_dict().values()]
        tensors += [one for state in self.optimizer.state_dict()["state"].values() for one in state.values()]
        for tensor in [*tensors, torch.get_rng_state()]:
            found.update(tensor.numpy().tobytes())
        return found.hexdigest()

    @torch.no_grad()
    def loss(self, trained: Trained) -> float:
        """Of all that was trained, against the weights that everybody begins with."""
        first, total = Learner(), 0.0
        for packed, denominators in trained:
            proximal = label_logprobs(first.logits(packed), packed)
            total += float(policy_loss(self.logits(packed), packed, denominators, proximal=proximal))
        return total


def learn(settings: Settings, folder: Path, steps: int, points: KillPoints, *, measured: bool) -> dict[str, Any]:
    """Train up to that step; checkpoints at odd ones."""
    learner, trained = Learner(), Trained()
    model, optimizer = learner.model, learner.optimizer
    checkpoints = CheckpointFolder(folder / "checkpoints", keep=1, model=model, optimizer=optimizer)

    def weights(policy: Policy) -> tuple[str, str]:
        return save_weights(learner.model, folder / "weights", policy)

    uri, digest = weights(Policy(0, 0))
    with SyncGroupStream(settings, Start(resume=checkpoints, weights=uri, digest=digest)) as stream:
        points.at("opened")
        checkpoints.load(stream)
        points.at("loaded")
        done = (stream.step or 1) - 1
        batches = stream.batches()
        while done < steps:
            batch = next(batches)
            points.at("drawn")
            packs = batch.packs(4096, sampling=Sampling(temperature=1.0))
            learner.step(packs, batch.denominators)
            points.at("stepped")
            trained += [(packed, batch.denominators) for packed in packs]
            done = batch.step or 0
            policy = Policy(stream.history.timeline, done)
            save = (lambda batch=batch: checkpoints.save(stream, batch)) if done % 2 else None
            batch.trained(publish=lambda policy=policy: weights(policy), checkpoint=save)
            points.at("told")
        at_end = learner.digest()
    points.at("closed")
    losses = [Learner().loss(trained), learner.loss(trained)] if measured else None
    return {"digest": at_end, "losses": losses}


def run(order: dict[str, Any]) -> None:
    """One trainer, in a fork."""
    points, folder = KillPoints(order["fatal"]), Path(order["folder"])
    points.install()
    said = learn(Settings.model_validate(order["settings"]), folder, order["steps"], points, measured=order["measured"])
    (folder / "said.json").write_text(json.dumps({**said, "points": points.passed}))


def main() -> None:
    torch.set_num_threads(1)
    Learner()  # a first optimizer imports much of torch
    for line in sys.stdin:
        order = json.loads(line)
        answer = Path(order["folder"]) / "said.json"
        answer.unlink(missing_ok=True)
        if not (child := os.fork()):
            code = 1
            try:
                run(order)
                code = 0
            finally:
                sys.stderr.flush()
                os._exit(code)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        said = json.loads(answer.read_text()) if code == 0 else {}
        print(json.dumps({"code": code, **said}), flush=True)


if __name__ == "__main__":
    main()
