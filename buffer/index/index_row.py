"""What all rows of `rollout-index` are: typed structs with a tag, which is the kind of the row and begins its key.

Guarantees: a row that is read has the types and bounds that stand at its fields, or is a ValueError. A key names one
event, so compaction removes nothing but old rows of one key. Leaves out: the kinds (`rollout_row`, `rows`), and their
bytes (`row_codec`).
"""

from __future__ import annotations

from typing import Annotated, ClassVar

from msgspec import Meta, Struct

from rolloutlog.contract.handles import BEFORE
from rolloutlog.contract.record.slot import MAX_GROUP
from rolloutlog.contract.vocabulary import EventType

MAX_NUMBER = 2**63 - 1

Number = Annotated[int, Meta(ge=0, le=MAX_NUMBER)]
Place = Annotated[int, Meta(ge=-BEFORE, le=MAX_NUMBER)]
"""An offset; of what lies in a source, `BEFORE` below it."""
Text = Annotated[str, Meta(min_length=1)]
Size = Annotated[int, Meta(ge=1, le=MAX_GROUP)]
Member = Annotated[int, Meta(ge=0, lt=MAX_GROUP)]
Attempt = Annotated[int, Meta(ge=1, le=MAX_NUMBER)]


class IndexRow(Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag=True):
    """An array whose first element is the tag; a field is added at the end, with a new code (`row_codec`)."""

    TYPE: ClassVar[EventType]

    @property
    def key(self) -> str:
        """Key of the row on the index."""
        return str(self.__struct_config__.tag)


class EventRow(IndexRow, frozen=True):
    """A row of one event; `id` is that event's, of its group. `offset` lies on the topic of the event, and is a place
    below 0 where that is a source's (design/buffer#source)."""

    offset: Place
    id: Text
    group: Text

    @property
    def key(self) -> str:
        """Kind and event id."""
        return f"{self.__struct_config__.tag}/{self.id}"
