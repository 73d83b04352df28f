"""Which file a line was recorded in, where the line itself names neither run nor group.

A file is known by what it holds, not by its name or by how it begins. It is one that the log has
(1) where one of the two holds all lines of the other, equal lines counted: it is a copy, was moved, or grew;
(2) where it lies at the same path and at least half of the lines are there still: it was edited.
What is said beside it speaks against that: another step folder, kind, environment or model makes another file, even of
equal lines, unless the path is the same, too. Any other file is a new one, whatever lines it shares.

Guarantees: the rule doesn't depend on the order of lines; the name of a file is a function of its first line and of
what is said beside it, so a file that is cut or grows keeps it. Leaves out: files whose lines name their run.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from rolloutlog.contract.ids import id_of
from rolloutlog.formats.foreign.recorded import Origin

UNSAID = "-"
PACKED = ".zst"
_DIGITS = 16
_FACT_DIGITS = 8


class FileId(NamedTuple):
    """A file's name on the log, where it lay, and what is said beside it: the header `ce_sourcefile`."""

    name: str
    path: str
    step: str = UNSAID
    kind: str = UNSAID
    env: str = UNSAID
    model: str = UNSAID

    @classmethod
    def at(cls, path: str, origin: Origin) -> FileId:
        """A file that has no name yet."""
        place = id_of("path", os.path.abspath(path).removesuffix(PACKED))[:_DIGITS]
        return cls("", place, *map(_fact, (origin.step, origin.kind, origin.env, origin.model)))

    @classmethod
    def parse(cls, text: str) -> FileId:
        """Read the header. Raises ValueError."""
        parts = text.split()
        if len(parts) != len(cls._fields):
            raise ValueError(f"{text[:80]!r} isn't the id of a file")
        return cls(*parts)

    def __str__(self) -> str:
        return " ".join(self)

    def named(self, first: str, ordinal: int) -> FileId:
        """This file under the name of its first line; `ordinal` tells files apart that begin alike."""
        return self._replace(name=id_of("file", first, *self[2:], ordinal)[:_DIGITS])

    def agrees(self, other: FileId) -> bool:
        """True where nothing that is said beside the two differs."""
        return all(mine == its or UNSAID in (mine, its) for mine, its in zip(self[2:], other[2:], strict=True))


def _fact(said: str | int | None) -> str:
    return UNSAID if said is None else id_of("fact", said)[:_FACT_DIGITS]


@dataclass(slots=True)
class KnownFile:
    """A file that is on the log: how often it has each line, by the line's mark, and how many lines in all."""

    id: FileId
    paths: set[str]
    marks: Counter[str] = field(default_factory=Counter[str])
    total: int = 0

    def is_same(self, other: FileId, shared: int, total: int) -> bool:
        """True for a file with so many lines, of which so many are here."""
        contained = shared == min(total, self.total)
        if other.path in self.paths:
            return contained or (2 * shared >= min(total, self.total) and self.id.agrees(other))
        return contained and self.id.agrees(other)


@dataclass(slots=True)
class KnownFiles:
    """The files whose lines are on the log, or are about to be."""

    _files: dict[str, KnownFile] = field(default_factory=dict[str, KnownFile])
    _having: dict[str, list[str]] = field(default_factory=dict[str, list[str]])

    def add(self, file: FileId, mark: str, *, keep: bool = True) -> None:
        """Take a line that is on the log; one that nobody will ask for is only counted."""
        known = self._files.setdefault(file.name, KnownFile(file, set()))
        known.paths.add(file.path)
        known.total += 1
        if keep:
            self._mark(known, mark)

    def extend(self, file: FileId, marks: Mapping[str, int], seen: Mapping[str, int]) -> None:
        """Take lines of a file that is read: `seen` counts all of its lines so far, `marks` has the new ones."""
        known = self._files.setdefault(file.name, KnownFile(file, {file.path}))
        for mark in marks:
            while known.marks[mark] < seen[mark]:
                known.total += 1
                self._mark(known, mark)

    def find(self, file: FileId, marks: Mapping[str, int]) -> FileId | None:
        """The file on the log that this one is; of several the one at its path, then the one with most of its lines."""
        shared = Counter[str]()
        for mark, count in marks.items():
            for name in self._having.get(mark, ()):
                shared[name] += min(count, self._files[name].marks[mark])
        total = sum(marks.values())
        same = [
            (file.path in known.paths, count, name)
            for name, count in shared.items()
            if (known := self._files[name]).is_same(file, count, total)
        ]
        return self._files[max(same)[2]].id if same else None

    def lies_at(self, name: str, path: str) -> bool:
        """True where lines of the file of that name were read at this path."""
        return name not in self._files or path in self._files[name].paths

    def new(self, file: FileId, first: str) -> FileId:
        """A name for a file that the log doesn't have."""
        ordinal = 0
        while (named := file.named(first, ordinal)).name in self._files:
            ordinal += 1
        return named

    def _mark(self, known: KnownFile, mark: str) -> None:
        if mark not in known.marks:
            self._having.setdefault(mark, []).append(known.id.name)
        known.marks[mark] += 1
