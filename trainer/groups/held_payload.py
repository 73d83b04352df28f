"""Bodies of records that stand, held in memory until they are drawn, and their bytes (design/trainer#memory).

Guarantees: values only. Leaves out: the bound on them (`rolloutlog.trainer.stream.intake`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from rolloutlog.contract.events.body import Body
from rolloutlog.contract.record.rollout import Rollout
from rolloutlog.contract.record.slot import Slot


class Payload(NamedTuple):
    """The body of a standing record, to be decoded when it is drawn; `rollout` where it was decoded for that."""

    slot: Slot
    body: Body
    rollout: Rollout | None = None


@dataclass(slots=True)
class PayloadBytes:
    """How many bytes of payloads the groups of a partition hold."""

    held: int = 0
