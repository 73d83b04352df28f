"""The mark of the trainer that writes: who it is and how many of its writes are on the log (design/trainer#pen).

Guarantees: each transaction of a trainer ends with its mark, a cursor on `run`, so that whoever reads it knows which of
its writes are there. Leaves out: writing, and what follows (`step_writer`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rolloutlog.contract.events.event import Outgoing
from rolloutlog.contract.events.run import CURSOR, cursor_moved, read_fact
from rolloutlog.contract.topics import Topic
from rolloutlog.contract.wire.rejection import Rejected
from rolloutlog.kafka.client.connection import HIDDEN_S, Connection
from rolloutlog.kafka.read.reading import read_to_end, settled
from rolloutlog.trainer.dispatch.unwritten_events import SOURCE

NAME = "trainer"
PLACE = (Topic.RUN, 0)


@dataclass(slots=True, frozen=True)
class WriterMark:
    """`life` is one trainer's, from its start to its end; `writes` of it are on the log. `after` is the mark of the
    trainer before it, as far as that had come."""

    life: str
    writes: int
    after: tuple[str, int] | None = None

    def event(self, now: int) -> Outgoing:
        """Its cursor."""
        return cursor_moved(NAME, asdict(self), source=SOURCE, now=now)


async def read_marks(connection: Connection, *, whole: bool) -> list[WriterMark]:
    """The marks on the log, oldest first; compaction may have removed old ones. `whole`: once nothing that was written
    before is hidden. Raises OpenTransaction, BrokerUnreachable."""
    known = (await settled(connection, [PLACE], HIDDEN_S))[PLACE] if whole else None
    marks: list[WriterMark] = []
    async for events in read_to_end(connection, *PLACE, allow_open=True, known=known):
        for event in events:
            if event.key == f"{CURSOR}{NAME}".encode():
                try:
                    marks.append(_mark_of(read_fact(event)[1]))
                except (Rejected, KeyError, TypeError, ValueError):
                    continue  # whoever reads the run's facts warns of it
    return marks


def newest_mark(cursors: Mapping[str, Mapping[str, Any]]) -> WriterMark | None:
    """That of the last trainer that wrote; None where none did, or what is there is no mark."""
    try:
        return _mark_of(cursors[NAME])
    except (KeyError, TypeError, ValueError):
        return None


def has_written(marks: Sequence[WriterMark], life: str, writes: int) -> bool | None:
    """Whether that trainer's write with this number is on the log; None where that can't be told any more."""
    if any(mark.life == life and mark.writes >= writes for mark in marks):
        return True
    if (told := next((mark.after[1] for mark in marks if mark.after and mark.after[0] == life), None)) is not None:
        return told >= writes
    return False if marks and marks[-1].life == life else None


def _mark_of(body: Mapping[str, Any]) -> WriterMark:
    after = body.get("after")
    return WriterMark(str(body["life"]), int(body["writes"]), (str(after[0]), int(after[1])) if after else None)
