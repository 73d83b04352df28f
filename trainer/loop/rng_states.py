"""The states of this process's random numbers: Python's, numpy's, torch's on the CPU and on every CUDA device.

Guarantees: put back, the same numbers come next. Leaves out: generators of one's own, which are parts of a checkpoint
if they have a `state_dict`, and other processes.
"""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import torch


def rng_states() -> dict[str, Any]:
    """As a checkpoint holds them."""
    numpy = np.random.get_state(legacy=False)
    return {
        "python": random.getstate(),
        "numpy": {**numpy, "state": {**numpy["state"], "key": numpy["state"]["key"].tolist()}},
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all(),
    }


def put_rng_states(states: dict[str, Any]) -> None:
    """Go on from there; on as many CUDA devices as there are now."""
    numpy = states["numpy"]
    key = np.array(numpy["state"]["key"], np.uint32)
    random.setstate(states["python"])
    np.random.set_state({**numpy, "state": {**numpy["state"], "key": key}})
    torch.set_rng_state(states["torch"])
    torch.cuda.set_rng_state_all(states["cuda"][: torch.cuda.device_count()])
