"""Where a feeder is: what it says on `run` with every seed that it writes, and from where it reads when it starts
(design/live-loop#feeder).

Guarantees: what is found again from there is what was there when the cursor was written. Leaves out: moving it
(`seed_feeder`).
"""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from rolloutlog.contract.topics import Topic
from rolloutlog.kafka.client.connection import Connection
from rolloutlog.kafka.live_watermarks import read_live_watermarks
from rolloutlog.kafka.read.ends import ends

PREFIX = "feed/"
"""How names of feeders' cursors begin on `run`."""


def cursor_name(env: str) -> str:
    """The name of the cursor of that environment's feeder."""
    return f"{PREFIX}{env}"


class FeedCursor(BaseModel):
    """`cursor.moved` of a feeder: the next place of its source, which source that is, and where its groups begin."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    source: str
    epoch: int = Field(default=0, ge=0)
    place: int = Field(default=0, ge=0)
    round: int = Field(default=0, ge=0)
    """The last eval round that was asked."""
    is_done: bool = False
    """All epochs were walked, and all groups have ended."""
    share: float | None = None
    """Its part of the fresh groups that may be open, where it was given one."""
    starts: tuple[tuple[int, int], ...] = ()
    """Of each partition, from which offsets of `seeds` and `group-events` the open groups are found again."""


async def feed_starts(connection: Connection, partitions: int, cursor: FeedCursor) -> dict[tuple[Topic, int], int]:
    """From where on both topics are read: where the cursor says; without one, the watermarks of the last live step,
    below which every group has ended. What was deleted since had ended."""
    marks = await read_live_watermarks(connection)
    known = await ends(connection, [Topic.SEEDS, Topic.GROUP_EVENTS])
    starts: dict[tuple[Topic, int], int] = {}
    for number in range(partitions):
        said = (0, 0) if marks is None else (marks.partitions[number].seeds, marks.partitions[number].events)
        if len(cursor.starts) == partitions:
            said = cursor.starts[number]
        for topic, offset in zip((Topic.SEEDS, Topic.GROUP_EVENTS), said, strict=True):
            starts[topic, number] = max(offset, known[topic, number].first)
    return starts
