"""The ended groups of a shard that aren't forgotten yet; those that nobody looks at as some bytes
(design/buffer#ended).

Guarantees: what is put away and taken out again is equal; a group that is read to its end takes its bytes alone while
nothing is said of it. An object is good until `put_away`. Leaves out: when a group is forgotten
(`rolloutlog.buffer.folding.forgetting`).
"""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from typing import NamedTuple

import msgspec

from rolloutlog.buffer.group.closed_group import ClosedGroup
from rolloutlog.buffer.group.group import Shape
from rolloutlog.buffer.group.open_group import Kin, Kinship
from rolloutlog.buffer.sources.candidates import Mark


class _AtRest(NamedTuple):
    """What is left of a group that is read to its end."""

    recorded: Kinship | None
    promised: Kinship | None
    hinted: Kinship | None
    partition: int
    as_of: int
    shape: Shape | None
    final_at: int | None
    mark: Mark | None
    refused: bool
    counted: bool
    settled_at: int | None


_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(_AtRest)


class ClosedGroups(MutableMapping[str, ClosedGroup]):
    """By id. `_seen` are those that somebody got since they were put away, or that aren't at rest."""

    __slots__ = ("_at_rest", "_got", "_seen")

    def __init__(self) -> None:
        self._at_rest: dict[str, bytes] = {}
        self._seen: dict[str, ClosedGroup] = {}
        self._got: set[str] = set()

    def __repr__(self) -> str:
        return f"ClosedGroups({dict(self.items())})"

    def __len__(self) -> int:
        return len(self._at_rest) + len(self._seen)

    def __iter__(self) -> Iterator[str]:
        return iter([*self._seen, *self._at_rest])

    def __contains__(self, group: object) -> bool:
        return group in self._at_rest or group in self._seen

    def __getitem__(self, group: str) -> ClosedGroup:
        if (found := self.find(group)) is None:
            raise KeyError(group)
        return found

    def find(self, group: str) -> ClosedGroup | None:
        """That group, if it is here."""
        found = self._seen.get(group)
        if found is None:
            if (packed := self._at_rest.pop(group, None)) is None:
                return None
            found = self._seen[group] = _unpacked(packed)
        self._got.add(group)
        return found

    def __setitem__(self, group: str, closed: ClosedGroup) -> None:
        self._at_rest.pop(group, None)
        self._seen[group] = closed
        self._got.add(group)

    def __delitem__(self, group: str) -> None:
        if self._at_rest.pop(group, None) is None:
            del self._seen[group]

    def resting(self) -> Iterator[str]:
        """Groups that are read to their end."""
        yield from self._at_rest
        yield from (group for group, seen in self._seen.items() if seen.group is None)

    def at_rest(self, group: str) -> bytes | None:
        """Its bytes, if it is here and read to its end."""
        seen = self._seen.get(group)
        if seen is None:
            return self._at_rest.get(group)
        return None if seen.group is not None else _packed(seen)

    def rest(self, group: str, packed: bytes) -> ClosedGroup:
        """Those are its bytes; an object to look at. Raises ValueError for others."""
        closed = _unpacked(packed)
        self._seen.pop(group, None)
        self._at_rest[group] = packed
        return closed

    def put_away(self) -> None:
        """Nobody holds an object of these any more."""
        for group in self._got:
            closed = self._seen.get(group)
            if closed is not None and closed.group is None:
                self._at_rest[group] = _packed(closed)
                del self._seen[group]
        self._got.clear()
        self._seen = self._seen or {}  # an empty table may be a large one


def _packed(closed: ClosedGroup) -> bytes:
    kin = closed.kin
    return _ENCODER.encode(
        (
            kin.recorded,
            kin.promised,
            kin.hinted,
            closed.partition,
            closed.as_of,
            closed.shape,
            closed.final_at,
            closed.mark,
            closed.refused,
            closed.counted,
            closed.settled_at,
        )
    )


def _unpacked(packed: bytes) -> ClosedGroup:
    said = _DECODER.decode(packed)
    return ClosedGroup(
        Kin(said.recorded, said.promised, said.hinted),
        said.partition,
        said.as_of,
        None,
        said.shape,
        said.final_at,
        said.mark,
        said.refused,
        said.counted,
        said.settled_at,
    )
