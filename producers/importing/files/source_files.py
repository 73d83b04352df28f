"""The files of a source, as far as lines have to be told apart by the file that they stand in.

Guarantees: the n-th of equal lines of a file is a rollout of its own, the same one in each copy of the file. Leaves
out: when two files are one (`file_id`).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from rolloutlog.producers.importing.files.file_id import FileId, KnownFiles
from rolloutlog.producers.importing.files.spans import FileSpan


@dataclass(slots=True)
class CountedFile:
    """A file that is read: all of its lines so far, those that were not yet looked up, and those that were placed."""

    id: FileId
    first: str
    marks: Counter[str] = field(default_factory=Counter[str])
    new: Counter[str] = field(default_factory=Counter[str])
    placed: Counter[str] = field(default_factory=Counter[str])


@dataclass(slots=True)
class SourceFiles:
    """Files by path."""

    _files: dict[str, CountedFile] = field(default_factory=dict[str, CountedFile])

    def count(self, span: FileSpan, mark: str) -> None:
        """Take a line of a file."""
        if (file := self._files.get(span.path)) is None:
            file = self._files[span.path] = CountedFile(FileId.at(span.path, span.origin), mark)
        file.new[mark] += 1

    def settle(self, known: KnownFiles) -> None:
        """Find out which file each is, once lines of it were counted."""
        for path in self._files:
            self.settle_one(path, known)

    def settle_one(self, path: str, known: KnownFiles) -> bool:
        """The same for one file; False where it isn't the one that it was taken for: it is to be read anew."""
        file = self._files.get(path)
        if file is None or not file.new:
            return True
        file.marks += file.new
        before = file.id.name
        if not before or not known.lies_at(before, file.id.path):
            found = known.find(file.id, file.marks) or known.new(file.id, file.first)
            file.id = file.id._replace(name=found.name)
        if before not in ("", file.id.name):  # elsewhere there was one that began as this one does
            for counted in (file.marks, file.new, file.placed):
                counted.clear()
            return False
        known.extend(file.id, file.new, file.marks)
        file.new.clear()
        return True

    def of(self, path: str) -> FileId | None:
        """Which file it is, once it is settled; None for one of which no line was counted."""
        file = self._files.get(path)
        return None if file is None else file.id

    def next(self, path: str, mark: str) -> int:
        """Place a line: how many equal ones of its file were placed before."""
        placed = self._files[path].placed
        placed[mark] += 1
        return placed[mark] - 1

    def begin(self, path: str) -> None:
        """Its lines are placed from the first one on."""
        if path in self._files:
            self._files[path].placed.clear()

    def forget(self, path: str) -> None:
        """It was rewritten: its lines are counted anew."""
        self._files.pop(path, None)
