"""What a collection did, or would do: of each partition from where on it is kept, and for what.

Guarantees: as facts. Leaves out: printing.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from rolloutlog.consumers.collecting.need import Need
from rolloutlog.contract.topics import Topic


@dataclass(slots=True, frozen=True)
class KeptFrom:
    """A partition of a topic that began at `first` begins at `offset` now, for `why`; `deleted` offsets lie between."""

    topic: Topic
    partition: int
    first: int
    offset: int
    why: str

    @classmethod
    def of(cls, need: Need, partition: int, first: int) -> KeptFrom:
        """Nothing comes back that is gone."""
        return cls(need.topic, partition, first, max(need.offset, first), need.why)

    @property
    def deleted(self) -> int:
        """Offsets that are deleted; markers of transactions count as records."""
        return self.offset - self.first


@dataclass(slots=True)
class Collected:
    """`sealed` counts the records of all seals. `dry_run`: nothing was written or deleted."""

    dry_run: bool
    sealed: int = 0
    kept: list[KeptFrom] = field(default_factory=list[KeptFrom])
    ignored: list[str] = field(default_factory=list[str])

    def as_json(self) -> dict[str, Any]:
        """The object that `rolloutlog gc --json` prints."""
        kept = [asdict(each) | {"deleted": each.deleted} for each in self.kept]
        deleted = sum(each.deleted for each in self.kept)
        return {
            "dry_run": self.dry_run,
            "sealed": self.sealed,
            "deleted": deleted,
            "kept": kept,
            "ignored": self.ignored,
        }
