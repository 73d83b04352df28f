"""The source of a run: which records of an ended namespace it draws on, or trains offline (design/buffer#source,
design/trainer#offline).

Guarantees: what is read is of its shape, and each partition has a range of offsets; its digest is that of all of it.
Leaves out: the event that says it (`run`), and whether it can be read (`rolloutlog.kafka.source_log`).
"""

from __future__ import annotations

from typing import Annotated, Any, Self

import orjson
from pydantic import BaseModel, ConfigDict, Field, model_validator

from rolloutlog.contract.handles import BEFORE, NAMESPACE
from rolloutlog.contract.ids import id_of

Offset = Annotated[int, Field(ge=0, lt=BEFORE)]


class DeclaredSource(BaseModel):
    """Of partition p of `namespace`'s `rollouts` those in `[begins[p], ends[p])`, as the manifest of that SHA-256 has
    it; `blobs` is the store that the namespace was declared with. `offline`: the run's trainer trains those records
    themselves, and nothing is made in the run."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    namespace: Annotated[str, Field(pattern=NAMESPACE)]
    manifest: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
    begins: Annotated[list[Offset], Field(min_length=1)]
    ends: Annotated[list[Offset], Field(min_length=1)]
    blobs: str | None = None
    offline: bool = False

    @model_validator(mode="after")
    def _agrees(self) -> Self:
        if len(self.begins) != len(self.ends) or any(map(int.__gt__, self.begins, self.ends)):
            raise ValueError("each partition has a first offset and an end that isn't below it")
        return self

    @property
    def partitions(self) -> int:
        """Partitions of the namespace."""
        return len(self.ends)

    @property
    def text(self) -> dict[str, Any]:
        """All of it, as JSON has it; what isn't offline is named as it was before there was such a thing."""
        return self.model_dump(exclude=set() if self.offline else {"offline"})

    @property
    def digest(self) -> str:
        """What names it on `run`."""
        return id_of("source", orjson.dumps(self.text, option=orjson.OPT_SORT_KEYS).decode())

    def first(self, partition: int) -> int | None:
        """The first offset of a partition; None where it holds nothing."""
        return self.begins[partition] if self.begins[partition] < self.ends[partition] else None
