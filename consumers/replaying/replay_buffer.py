"""ReplayBuffer: a frozen buffer for training scripts (design/buffer#offline).

Guarantees: `buffer[i]` is candidate `i mod n`, the same on every worker and every day, or NotFound, which says what is
gone; it needs neither torch nor an event loop, any thread may ask, and a process that was forked or spawned opens
connections of its own, so it works as a map-style data set of torch, with workers. Memory is bounded, however many
candidates there are. Leaves out: making one (`freezing`).

    buffer = ReplayBuffer.open("frozen/manifest.json")
    item = buffer[0]
    item.messages, item.rollout.trajectory
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Self

from rolloutlog.buffer.offline.candidate_table import Table
from rolloutlog.buffer.offline.manifest import MANIFEST, Manifest
from rolloutlog.consumers.replaying.candidate_file import open_candidates
from rolloutlog.consumers.replaying.candidate_reader import CandidateReader, ReplayItem
from rolloutlog.consumers.replaying.source_choice import read_manifest
from rolloutlog.contract.errors import NotFound
from rolloutlog.contract.settings import Settings
from rolloutlog.kafka.client.loop_thread import LoopThread

AT_ONCE = 64
"""Candidates that are read together when all are."""


class ReplayBuffer:
    """Made by `open`. `manifest` says of what it is the fold."""

    def __init__(self, path: Path, manifest: Manifest, table: Table, settings: Settings) -> None:
        self.manifest = manifest
        self._path, self._table, self._settings = path, table, settings
        self._opening = threading.Lock()
        self._opened: tuple[int, CandidateReader, LoopThread] | None = None

    @classmethod
    def open(cls, manifest: str | Path, settings: Settings | None = None) -> Self:
        """The buffer of a manifest, or of the folder that it lies in. The broker is that of `settings`; None: of
        `Settings.load()`. It is asked when the first candidate is read.

        Raises ManifestInvalid, SettingsError.
        """
        path = Path(manifest)
        path = path / MANIFEST if path.is_dir() else path
        found, _ = read_manifest(path)
        return cls(path, found, open_candidates(path.parent, found), settings or Settings.load())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __len__(self) -> int:
        return len(self._table)

    def __getitem__(self, index: int) -> ReplayItem:
        """Candidate `index mod n`. Raises NotFound, BrokerUnreachable."""
        return self.read([index])[0]

    def __getitems__(self, indices: Sequence[int]) -> list[ReplayItem]:
        """How torch's data loader asks for a batch."""
        return self.read(indices)

    def __iter__(self) -> Iterator[ReplayItem]:
        """All of them once, in their order."""
        for start in range(0, len(self), AT_ONCE):
            yield from self.read(range(start, min(start + AT_ONCE, len(self))))

    def read(self, indices: Sequence[int]) -> list[ReplayItem]:
        """Several at once, in the order asked; faster than one by one. Raises NotFound, BrokerUnreachable."""
        if not len(self):
            raise NotFound(f"the buffer of {self._path} is empty", "freeze a later cut, or with other settings")
        reader, thread = self._reading()
        return thread.wait(reader.read, [index % len(self) for index in indices])

    def close(self) -> None:
        """Close the connections; the next read opens them again."""
        opened, self._opened = self._opened, None
        if opened is not None:
            opened[2].close()

    def __reduce__(self) -> tuple[Callable[..., ReplayBuffer], tuple[Path, Settings]]:
        return type(self).open, (self._path, self._settings)

    def _reading(self) -> tuple[CandidateReader, LoopThread]:
        """The connections of this process."""
        with self._opening:
            if self._opened is None or self._opened[0] != os.getpid():
                reader = CandidateReader(self.manifest, self._table, self._settings)
                self._opened = os.getpid(), reader, LoopThread("replay buffer", reader.open, reader.close)
            return self._opened[1:]
