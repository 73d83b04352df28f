"""`manifest.pinned` of `run`: a frozen buffer whose records must stay (design/log#seals).

Guarantees: one key a manifest, under its digest; a pin that holds nothing any more has no offsets. Leaves out: the
manifest itself (`rolloutlog.buffer.offline.manifest`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from rolloutlog.contract.events.event import Outgoing
from rolloutlog.contract.events.run import PIN, fact, facts_under
from rolloutlog.contract.numbers import Counted
from rolloutlog.contract.vocabulary import EventType

Partition = Annotated[str, Field(pattern="^(0|[1-9][0-9]{0,3})$")]


class ManifestPin(BaseModel):
    """`rollouts` are the lowest offsets, by partition, that the manifest's candidates are read from."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    manifest: str = Field(pattern="^[0-9a-f]{64}$")
    rollouts: dict[Partition, Counted] = Field(default_factory=dict[str, int])

    @property
    def lowest(self) -> dict[int, int]:
        """The same, by number."""
        return {int(partition): offset for partition, offset in self.rollouts.items()}


def manifest_pinned(pin: ManifestPin, *, source: str, now: int) -> Outgoing:
    """`manifest.pinned`; the newest of a manifest holds."""
    return fact(EventType.MANIFEST_PINNED, f"{PIN}{pin.manifest}", pin.model_dump(mode="json"), source, now)


def read_pins(facts: Mapping[str, object]) -> tuple[list[ManifestPin], list[str]]:
    """The manifests that hold records, and what is wrong with facts that can't be read."""
    pins, wrong = facts_under(facts, PIN, ManifestPin, "pin")
    found: list[ManifestPin] = []
    for name, pin in pins:
        if name != f"{PIN}{pin.manifest}":
            wrong.append(f"the pin {name[:80]!r} is of another manifest")
        elif pin.rollouts:
            found.append(pin)
    return found, wrong
