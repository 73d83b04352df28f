"""Which files of a path hold recorded rollouts, in the order in which they were written (design/eras#files).

Guarantees: a path may name a run folder, its `rollouts`, a step folder, a file or a glob; step 9 comes before step 10;
one file reached twice, also by a link, is read once; what belongs to a run and holds no rollouts is passed over and
counted. Leaves out: what the lines are, which names never decide (`rolloutlog.formats.foreign.era`).
"""

from __future__ import annotations

import glob
import os
import re
import stat
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path

from rolloutlog.contract.errors import SourceUnreadable
from rolloutlog.contract.vocabulary import RunKind
from rolloutlog.formats.foreign.recorded import Origin
from rolloutlog.producers.importing.files.evidence import Evidence, evidence_beside
from rolloutlog.producers.importing.files.lines import beginning_of, first_line, is_whole
from rolloutlog.producers.importing.files.magic import foreign_format

LINES = (".jsonl", ".jsonl.zst")
PARTS_OF_A_RUN = ("rollouts", "monitors")
"""Folders in which a run keeps its rollouts; where one is there, its siblings (weights, data) aren't searched."""

SHOWN_ENDINGS = 5

_STEP = re.compile(r"^step_(\d+)$")
_OLD_NAME = re.compile(r"^(train|eval)_rollouts(?:_(.+))?$")
_DIGITS = re.compile(r"(\d+)")


@dataclass(slots=True, frozen=True)
class SourceFile:
    """One file of lines. `shown` is the path as the user would find it again."""

    path: Path
    origin: Origin

    @property
    def shown(self) -> str:
        """Path for messages and dead letters."""
        return str(self.path)

    @property
    def is_compressed(self) -> bool:
        """True for a chunk that was compressed when it was full."""
        return self.path.suffix == ".zst"


@dataclass(slots=True)
class Sources:
    """Files to read, in order; `passed` are those that hold no rollouts, `unreadable` those that can't be opened."""

    files: list[SourceFile] = field(default_factory=list[SourceFile])
    passed: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    unreadable: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])

    @property
    def size(self) -> int:
        """Bytes of all files, as they lie on the disk now."""
        return sum(os.stat(file.path).st_size for file in self.files)


def find_sources(paths: Iterable[str | Path], env: str | None = None) -> Sources:
    """All files below the paths; `env` is the environment of lines that nothing says one of.

    Raises SourceUnreadable where a path names nothing, or nothing holds lines.
    """
    return Finder(env).find(paths)


class Finder:
    """Finds files again and again; what is known of one that is still the same isn't asked twice."""

    def __init__(self, env: str | None = None) -> None:
        self._env = env
        self._origins: dict[tuple[Path, int], Origin] = {}
        self._evidence: dict[tuple[Path, str], Evidence] = {}

    def find(self, paths: Iterable[str | Path]) -> Sources:
        """All files below the paths. Raises as `find_sources` does."""
        sources, seen = Sources(), set[tuple[int, int]]()
        for path in paths:
            for found in _named(str(path)):
                for file in _below(found, sources):
                    self._take(file, sources, seen)
        if not sources.files and not sources.unreadable:
            raise SourceUnreadable(f"no rollouts below {', '.join(map(str, paths))}: {_what_lies(sources)}")
        return sources

    def _take(self, file: Path, sources: Sources, seen: set[tuple[int, int]]) -> None:
        try:
            status = file.stat()
        except FileNotFoundError:
            return  # gone since its folder was listed
        if not stat.S_ISREG(status.st_mode):
            sources.passed.append((str(file), "no-file"))  # a pipe would be waited for, for ever
            return
        try:
            str(file).encode()
        except UnicodeEncodeError:
            sources.unreadable.append((os.fsencode(file).decode("utf-8", "backslashreplace"), "its name isn't UTF-8"))
            return
        if (key := (status.st_dev, status.st_ino)) in seen:
            sources.passed.append((str(file), "same-file"))
            return
        seen.add(key)
        origin = self._origin(file, status.st_ino)
        if isinstance(origin, str):
            sources.unreadable.append((str(file), origin))
        else:
            sources.files.append(SourceFile(file, origin))

    def _origin(self, file: Path, inode: int) -> Origin | str:
        """What path, beginning and neighbours of a file say; a text says why it isn't lines."""
        if (known := self._origins.get((file, inode))) is not None:
            return known
        beginning = beginning_of(file)
        if (why := foreign_format(beginning)) is not None:
            return why
        origin, evidence = origin_of(file), self._beside(file)
        made = replace(
            origin,
            kind=origin.kind or evidence.kind,
            env=origin.env or evidence.env,
            model=evidence.model or _model_of(file),
            group_size=evidence.group_size,
            default_env=self._env,
        )
        if is_whole(first_line(beginning)):
            self._origins[file, inode] = made
        return made

    def _beside(self, file: Path) -> Evidence:
        key = (file.parent, file.name.split(".")[0])
        if key not in self._evidence:
            self._evidence[key] = evidence_beside(file)
        return self._evidence[key]


def _model_of(file: Path) -> str | None:
    """The model of an eval that verifiers wrote to `<env>--<model>/<id>/`."""
    named = file.parent.parent.name
    return named.partition("--")[2] or None


def origin_of(path: Path) -> Origin:
    """What the path says: the step folder, kind and cohort below it, and the names that the files of July 2026 had."""
    steps = [place for place, part in enumerate(path.parts[:-1]) if _STEP.match(part)]
    below = path.parts[steps[-1] : -1] if steps else ()
    found = _STEP.match(below[0]) if below else None
    step = int(found[1]) if found else None
    kind = next((RunKind(part) for part in below if part in tuple(RunKind)), None)
    cohort = next((part for part in below if part in ("all", "effective")), None)
    old = _OLD_NAME.match(path.name.split(".")[0])
    return Origin(step, RunKind(old[1]), old[2], cohort) if old else Origin(step, kind, None, cohort)


def natural(path: Path) -> list[tuple[int, int | str]]:
    """Sorting key that counts: `step_9` before `step_10`; what is said of a stream (E5) comes after it."""
    parts: list[tuple[int, int | str]] = [(0, int("annotations" in path.parts))]
    parts += [(0, int(part)) if part.isdigit() else (1, part) for part in _DIGITS.split(str(path)) if part]
    return parts


def _named(path: str) -> list[Path]:
    if os.path.lexists(path):
        return [Path(path)]
    found = sorted((Path(name) for name in glob.glob(path, recursive=True)), key=natural)
    if not found:
        raise SourceUnreadable(f"{path} isn't there")
    return found


def _below(path: Path, sources: Sources) -> Iterator[Path]:
    """Files of lines at or below a path; a file that the user names is taken whatever it is called."""
    if not path.is_dir():
        if os.access(path, os.R_OK):
            yield path
        else:
            sources.unreadable.append((str(path), "can't be read"))
        return
    parts = [path / part for part in PARTS_OF_A_RUN if (path / part).is_dir()]
    for root in parts or [path]:
        for file in sorted(_walk(root, sources), key=natural):
            if reason := _passed_over(file):
                sources.passed.append((str(file), reason))
            elif not os.access(file, os.R_OK):
                sources.unreadable.append((str(file), "can't be read"))
            else:
                yield file


def _walk(root: Path, sources: Sources) -> Iterator[Path]:
    def note(error: OSError) -> None:
        sources.unreadable.append((str(error.filename), error.strerror or "can't be read"))

    for folder, _, names in os.walk(root, onerror=note):
        yield from (Path(folder) / name for name in names)


def _what_lies(sources: Sources) -> str:
    """What a folder without lines holds: the endings of its files, most frequent first."""
    if not sources.passed:
        return "nothing lies there"
    endings = Counter("".join(Path(path).suffixes[-2:]) or Path(path).name for path, _ in sources.passed)
    shown = [f"{count} {ending}" for ending, count in endings.most_common(SHOWN_ENDINGS)]
    rest = len(sources.passed) - sum(count for _, count in endings.most_common(SHOWN_ENDINGS))
    return f"there is {', '.join(shown)}{f' and {rest} more' if rest else ''}, and nothing that ends in .jsonl"


def _passed_over(file: Path) -> str | None:
    """Why a file in a folder isn't read; None for one that is."""
    if not file.name.endswith(LINES):
        return "no-lines"
    if file.name == "metrics.jsonl":
        return "metrics"
    if ("traces", "live") in pairwise(file.parts):
        return "live"
    return None
