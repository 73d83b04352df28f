"""A reader that dies of the first events that it reads, as one does for which there is no memory left."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import NoReturn

from rolloutlog.contract.events.event import Event
from rolloutlog.kafka.read.fetcher import Place
from rolloutlog.kafka.read.processes import reader_program


def die(_: Sequence[Event], __: dict[Place, int], *, checks: bool) -> NoReturn:
    os._exit(9 + checks)


if __name__ == "__main__":
    reader_program.IDLE_MS = 1  # so that it tells where it stands before the first come
    reader_program.frame_of = die
    reader_program.main()
