"""Tests of the policy: one thread of torch each, as a worker has on a small machine."""

from __future__ import annotations

from importlib.util import find_spec

if find_spec("torch") is not None:
    import torch

    torch.set_num_threads(1)
