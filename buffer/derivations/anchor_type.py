"""A type of derivation as the index asks it for anchors, and its other hooks tried on them.

Guarantees: an anchor that leaves here can lie in a row. Whatever a hook raises, or says that is no answer, is raised
here, where it is a fault of that derivation on that record alone and can be told: its row says so, and no fold asks it
of that record again (design/buffer#hostile-json). The hooks of our own are functions of numbers that can't fail, and
aren't tried. Leaves out: what the fault does (`rolloutlog.buffer.sources.eligibility`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from rolloutlog.buffer.derivations.protocol import AnchorPoint, Balanced, Derivation
from rolloutlog.contract.numbers import is_natural
from rolloutlog.contract.record.trajectory import Trajectory
from rolloutlog.contract.vocabulary import WORD

MOST_TOKENS = 2**31 - 1


class AnchorType(NamedTuple):
    """One type, and the settings of it that a run has, if they are somebody else's."""

    kind: type[Derivation]
    tried: tuple[Derivation, ...] = ()

    def anchors(self, trajectory: Trajectory) -> Iterable[AnchorPoint]:
        """Its anchors. Raises whatever its hook raises, TypeError and ValueError for what is no anchor, also while one
        iterates."""
        points = self.kind.anchors(trajectory)
        return _checked(points, len(trajectory.nodes)) if self.tried else points

    def check(self, points: Iterable[AnchorPoint], reward: float | None) -> None:
        """Ask its other hooks of a record's anchors, of whatever type, and of its reward. Raises what they raise, and
        TypeError for an answer that is none."""
        for own in self.tried:
            if isinstance(own, Balanced) and reward is not None:
                own.was_right(reward)
            for point in points:
                if own.takes(point) and not _is_count(tokens := own.tokens(point)):
                    raise TypeError(f"`tokens` says {tokens!r} of {point}")


def _checked(points: Iterable[AnchorPoint], nodes: int) -> Iterator[AnchorPoint]:
    for point in points:
        _check(point, nodes)
        yield point


def _check(point: AnchorPoint, nodes: int) -> None:
    if not isinstance(point, AnchorPoint):  # pyright: ignore[reportUnnecessaryIsInstance] - it is somebody else's
        raise TypeError(f"`anchors` yields {point!r:.200}, which is no AnchorPoint")
    if not re.fullmatch(WORD, str(point.kind)):
        raise ValueError(f"{point!r:.200} has a kind that is no word of small letters, digits and dashes")
    if not is_natural(point.node) or point.node >= nodes or not _is_count(point.tokens):
        raise ValueError(f"{point!r:.200} isn't a node of {nodes} and its tokens")


def _is_count(said: object) -> bool:
    return is_natural(said) and isinstance(said, int) and said <= MOST_TOKENS
