"""An optimiser as a part of a checkpoint: what it made of past gradients, apart from what settings say of it
(design/live-loop#resuming).

Guarantees: after a load its decay, momentum and betas are those that it was made with, so that settings count from the
start at which they were changed; what another kind of optimiser made is left out, and that is told. Leaves out: the
rate, which each step sets (`model_step`).
"""

from __future__ import annotations

import logging
from typing import Any

import torch

log = logging.getLogger(__name__)


class KeptOptimizer:
    """The optimiser, as checkpoints keep it."""

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self._optimizer, self._type = optimizer, type(optimizer).__name__

    def state_dict(self) -> dict[str, Any]:
        """What it is now, and its kind."""
        return {**self._optimizer.state_dict(), "type": self._type}

    def load_state_dict(self, state: dict[str, Any], /) -> None:
        """Go on with what it made of gradients, if it is of the same kind."""
        if (other := state.get("type")) != self._type:
            log.warning("%s begins as it is at first: the checkpoint has what %s made of gradients", self._type, other)
            return
        said = [{name: value for name, value in group.items() if name != "params"} for group in self._groups]
        self._optimizer.load_state_dict({name: value for name, value in state.items() if name != "type"})
        for group, own in zip(self._groups, said, strict=True):
            group.update(own)

    @property
    def _groups(self) -> list[dict[str, Any]]:
        return self._optimizer.param_groups
