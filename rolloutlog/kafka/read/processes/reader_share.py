"""Some of the places, and the process that reads them (design/trainer#readers).

Guarantees: what a reader tells of a place counts if it was read since the place was sought last; what comes of a paused
place waits until it is resumed, and no more than was under way. A process that died is followed by another one that
begins where its frames end, so nothing is lost and nothing comes twice. Leaves out: waiting (`reader_fetcher`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from rolloutlog.contract.errors import ReaderFailed
from rolloutlog.contract.events.event import Event
from rolloutlog.kafka.read.ends import Place
from rolloutlog.kafka.read.processes.reader_process import ReaderProcess
from rolloutlog.kafka.read.processes.reader_words import Begin, Frame, Opening, Pause, Resume, Seek, events_of

DEATHS = 5
"""So many of its processes may die, one after the other, that have brought nothing."""

log = logging.getLogger(__name__)


class ReaderShare:
    """`opening` says how to read from some places on, `came` is called when there may be something to take."""

    def __init__(
        self, starts: Mapping[Place, int], opening: Callable[[list[Begin]], Opening], came: Callable[[], None]
    ) -> None:
        self.places = [*starts]
        self._numbers = {place: number for number, place in enumerate(self.places)}
        self._next, self._turns = [*starts.values()], [0] * len(starts)
        self._paused = set[int]()
        self._kept = dict[int, list[Event]]()
        self._opening, self._came = opening, came
        self._process: ReaderProcess | None = None
        self._deaths = 0

    @property
    def pid(self) -> int:
        """Of its process; 0 while there is none."""
        return self._process.pid if self._process else 0

    @property
    def is_open(self) -> bool:
        """True once its process reads."""
        return self._process is not None and self._process.is_open

    async def live(self) -> None:
        """Start its process, if there is none, or it has died and all that it told was taken. Raises ReaderFailed, and
        what the process raised."""
        if (process := self._process) is not None:
            failed, process.failed = process.failed, None
            if failed is not None and failed.turns == sum(self._turns):  # else it hadn't heard of a seek
                raise failed.error
            if not process.is_dead or process.frames:
                return
            await self._bury(process)
        begins = [
            Begin(*place, self._next[number], self._turns[number], number in self._paused)
            for number, place in enumerate(self.places)
        ]
        process = ReaderProcess(self._opening(begins), self._came)
        try:
            await process.start()
        except BaseException:
            process.close()
            raise
        self._process = process

    def close(self) -> None:
        """End its process."""
        if self._process is not None:
            self._process.close()
            self._process = None

    def take(self) -> list[Event] | None:
        """Events of one frame, or those that waited for a place; None where there are none, and empty where only
        positions moved."""
        if resumed := [number for number in self._kept if number not in self._paused]:
            return [event for number in resumed for event in self._kept.pop(number)]
        if self._process is None or not self._process.frames:
            return None
        frame = self._process.frames[0]
        with self._process.view(frame) as view:
            events = events_of(view, self.places)
        if events:  # each tells first where it stands, also one that dies of what comes next
            self._deaths = 0
        self._process.free(frame)
        return self._counted(events, frame)

    def position(self, place: Place) -> int:
        """Offset of the next record to come."""
        kept = self._kept.get(number := self._numbers[place])
        return kept[0].offset if kept else self._next[number]

    def seek(self, place: Place, offset: int) -> None:
        """Go on at another offset."""
        number = self._numbers[place]
        self._next[number] = offset
        self._turns[number] += 1
        self._kept.pop(number, None)
        self._tell(Seek(number, offset, self._turns[number]))

    def pause(self, place: Place) -> None:
        """Give no more of this place."""
        if (number := self._numbers[place]) not in self._paused:
            self._paused.add(number)
            self._tell(Pause(number))

    def resume(self, place: Place) -> None:
        """Give it again."""
        if (number := self._numbers[place]) in self._paused:
            self._paused.remove(number)
            self._tell(Resume(number))

    def _counted(self, events: list[Event], frame: Frame) -> list[Event]:
        """Those of the present turns of their places, but for those of paused ones, which are kept."""
        old = {self.places[number] for number, turn, _ in frame.moved if turn != self._turns[number]}
        for number, _, position in frame.moved:
            if self.places[number] not in old:
                self._next[number] = position
        paused = {self.places[number] for number in self._paused}
        if not old and not paused:
            return events
        given = list[Event]()
        for event in events:
            place = event.topic, event.partition
            if place in paused and place not in old:
                self._kept.setdefault(self._numbers[place], []).append(event)
            elif place not in old:
                given.append(event)
        return given

    async def _bury(self, process: ReaderProcess) -> None:
        """Note that one has died. Raises ReaderFailed."""
        code = await process.ended()
        process.close()
        self._process, self._deaths = None, self._deaths + 1
        said = f"a reader of {len(self.places)} partitions died (exit code {code})"
        if self._deaths > DEATHS:
            self._deaths = 0
            raise ReaderFailed(f"{said}, and so did {DEATHS} before it, which had brought nothing")
        log.warning("%s; another one goes on", said)

    def _tell(self, command: Seek | Pause | Resume) -> None:
        if self._process is not None:
            self._process.tell(command)
