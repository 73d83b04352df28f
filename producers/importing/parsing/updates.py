"""E5: what was said of a trace after it was streamed, by one producer a file (design/eras#updates).

Guarantees: updates are folded in the order of their files and lines, newest wins per key, `info` merged in depth; a
node takes a branch's values only where the branch covers it and has one for each of its sampled tokens; the values lie
on the response axis. Only places are kept in memory. Leaves out: updates of traces that the source doesn't have.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import IO, Any, NamedTuple, cast

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from rolloutlog.contract.events.validation import Rejected
from rolloutlog.contract.numbers import is_reward
from rolloutlog.contract.record import graph, value
from rolloutlog.contract.record.trajectory import AGENT, PARENT, SAMPLED, TOKENS, Trajectory
from rolloutlog.contract.vocabulary import RejectReason
from rolloutlog.contract.wire.json_text import parse, write
from rolloutlog.formats.foreign.json_parts import Json, items, part
from rolloutlog.formats.foreign.recorded import Origin
from rolloutlog.formats.foreign.rejecting import read_or_reject
from rolloutlog.producers.importing.files.lines import read_lines
from rolloutlog.producers.importing.files.spans import FileSpan

FLAGS = ("is_masked",)
"""Streams of true and false."""


class UpdateAt(Struct, frozen=True, tag="update"):
    """Where an update lies; `text` is the line itself where its file can't be read from the middle."""

    trace: str
    byte: int
    size: int
    text: bytes | None = None


class _Place(NamedTuple):
    path: str | None
    byte: int
    size: int


@dataclass(slots=True)
class Updates:
    """Places of all updates, by trace id in order. Lines of compressed files are unpacked into a file of our own."""

    _places: dict[str, list[_Place]] = field(default_factory=dict[str, list[_Place]])
    _scratch: IO[bytes] | None = None
    _folded: set[str] = field(default_factory=set[str])

    def add(self, update: UpdateAt, path: str) -> None:
        """Remember one."""
        place = _Place(path, update.byte, update.size)
        if update.text is not None:
            self._scratch = self._scratch or tempfile.TemporaryFile()  # noqa: SIM115
            self._scratch.seek(0, 2)
            place = _Place(None, self._scratch.tell(), update.size)
            self._scratch.write(update.text)
        self._places.setdefault(update.trace, []).append(place)

    def is_folded(self, trace: str) -> bool:
        """True once updates of a trace found their rollout."""
        return trace in self._folded

    def notes(self, traces: Sequence[str], body: bytes) -> Json:
        """Everything said of the traces of an episode, whose record's value is `body`, as notes."""
        said = [(number, text) for number, trace in enumerate(traces) for text in self._texts(trace)]
        if not said:
            return {}
        self._folded.update(traces)
        fold = _Fold(value.decode(body))
        for number, text in said:
            read_or_reject(fold.add_text, number, text)  # what pass two rejects says nothing
        return fold.notes()

    def _texts(self, trace: str) -> list[bytes]:
        return [self._text(place) for place in self._places.get(trace, ())]

    def _text(self, place: _Place) -> bytes:
        if place.path is None:
            return _span(cast("IO[bytes]", self._scratch), place)
        try:
            with open(place.path, "rb") as file:
                return _span(file, place)
        except FileNotFoundError:
            return _unpacked(place.path + ".zst", place)


def _unpacked(path: str, place: _Place) -> bytes:
    """From the chunk that took the place of a plain one meanwhile; it is read from its beginning."""
    lines = read_lines(FileSpan(path, Origin()))
    return next((line.text for line in lines if line.byte == place.byte), b"")


def _span(file: IO[bytes], place: _Place) -> bytes:
    file.seek(place.byte)
    return file.read(place.size)


def read_update(line: Json) -> Json:
    """An update of the right shape. Raises Rejected(shape)."""
    try:
        part(line, "info")
        for branch in items(line, "branches"):
            if not isinstance(branch["index"], int):
                raise TypeError("a branch's `index` is a number")
            for name, stream in _streams(branch):
                _values(name, stream)
        write(line.get("info"))  # what can't be written again is a fault of this line
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise Rejected(RejectReason.SHAPE, f"not an update: {error}") from error
    return line


class _Fold:
    """Updates of one rollout, folded."""

    def __init__(self, trajectory: Trajectory) -> None:
        nodes = trajectory.nodes
        self._parents = cast("list[int]", nodes[:, PARENT].tolist())
        self._agents = nodes[:, AGENT]
        self._tokens = cast("list[int]", nodes[:, TOKENS].tolist())
        self._ends = np.cumsum(nodes[:, TOKENS])
        self._sampled_ends = np.cumsum(nodes[:, SAMPLED])
        self._mask = trajectory.mask.astype(bool)
        self._size = trajectory.response_tokens
        self._info: Json = {}
        self._streams: dict[str, list[Any]] = {}

    def add_text(self, trace: int, text: bytes) -> None:
        """Take one update's line. Raises as foreign lines do."""
        self.add(trace, read_update(parse(text)))

    def add(self, trace: int, update: Json) -> None:
        """Take one update of the trace of that number."""
        _merge(self._info, part(update, "info"))
        paths = self._branches(trace)
        for branch in items(update, "branches"):
            index: int = branch["index"]
            if 0 <= index < len(paths):
                for name, stream in _streams(branch):
                    self._lay(name, _values(name, stream), paths[index])

    def notes(self) -> Json:
        """Facts for one annotation: what `info` says, and each stream on the response axis."""
        reward = self._info.get("reward")
        if not is_reward(reward):
            self._info["info_reward"] = self._info.pop("reward")
        trained: Json = {}
        if self._info.get("effective"):
            trained = {"trained": True, "step": part(self._info, "ship").get("step")}
        return {**self._info, **{k: v for k, v in trained.items() if v is not None}, **self._streams}

    def _branches(self, trace: int) -> list[list[int]]:
        """Paths of one trace's tree, in the order of its leaves."""
        return [path for path in graph.branches(self._parents) if self._agents[path[-1]] == trace]

    def _lay(self, name: str, values: npt.NDArray[np.float64], path: list[int]) -> None:
        laid = self._streams.setdefault(name, [None] * self._size)
        at = 0
        for node in path:
            length, end, sampled_end = self._tokens[node], int(self._ends[node]), int(self._sampled_ends[node])
            kept = values[at : at + length][self._mask[end - length : end][: max(0, len(values) - at)]]
            whole = at + length <= len(values)
            at += length
            if whole and len(kept) and not np.isnan(kept).any():
                laid[sampled_end - len(kept) : sampled_end] = (kept != 0).tolist() if name in FLAGS else kept.tolist()


def _streams(branch: Json) -> list[tuple[str, Any]]:
    return [(name, stream) for name, stream in branch.items() if name != "index" and stream is not None]


def _values(name: str, stream: Any) -> npt.NDArray[np.float64]:
    """A stream as numbers; null is NaN. Raises TypeError or ValueError."""
    if not isinstance(stream, list):
        raise TypeError(f"`{name}` isn't a list")
    values = np.array(cast("list[Any]", stream), np.float64)
    if values.ndim != 1:
        raise ValueError(f"`{name}` isn't a list of numbers")
    return values


def _merge(into: Json, said: Mapping[str, Any]) -> None:
    for key, new in said.items():
        old: Any = into.get(key)
        if isinstance(old, dict) and isinstance(new, dict):
            _merge(cast("Json", old), cast("Json", new))
        else:
            into[key] = new
