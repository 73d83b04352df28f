"""Policies as (timeline, version) pairs, and the history that says which of them still count
(design/record#effective-version).

Guarantees: numbers that are reused after a resume never collide; `History` is a fold of `policy-versions` in log order
and nothing else. Leaves out: staleness thresholds (`rolloutlog.trainer.staleness.rule`) and reading the topic.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Annotated, NamedTuple

from pydantic import Field

from rolloutlog.contract.numbers import natural

LAST_POLICY = 2**31
"""Timelines and versions are below it: segments name them in 32 bits."""
PolicyNumber = Annotated[int, Field(ge=0, lt=LAST_POLICY, strict=True)]


class Policy(NamedTuple):
    """The weights after train step `version` on `timeline`; the first are (0, 0)."""

    timeline: int
    version: int

    def __str__(self) -> str:
        return f"{self.timeline}:{self.version}"

    @classmethod
    def parse(cls, text: str) -> Policy:
        """Read `timeline:version`; raises ValueError."""
        timeline, version = text.split(":")
        return cls(natural(timeline), natural(version))


class Fork(NamedTuple):
    """A timeline's origin: its parent (None for a first start) and the step it goes on from."""

    parent: int | None
    step: int


@dataclass(slots=True)
class History:
    """Fold of `policy-versions`: timelines, the policies known on each, and the current one."""

    forks: dict[int, Fork] = field(default_factory=dict[int, Fork])
    published: set[Policy] = field(default_factory=set[Policy])
    imported: set[Policy] = field(default_factory=set[Policy])
    current_timeline: int | None = None
    current: Policy | None = None

    def start(self, timeline: int, parent: int | None, step: int) -> None:
        """Fold `timeline.started`."""
        self.forks[timeline] = Fork(parent, step)
        self.current_timeline = timeline
        self.current = None

    def publish(self, policy: Policy) -> None:
        """Fold `policy.published`; the newest of the current timeline is current, never the largest number."""
        self.published.add(policy)
        if policy.timeline == self.current_timeline:
            self.current = policy

    def add_imported(self, policy: Policy) -> None:
        """Fold `policy.imported`: known, never current."""
        self.imported.add(policy)

    @property
    def started(self) -> bool:
        """True once a trainer has started a timeline here."""
        return self.current_timeline is not None

    @property
    def is_empty(self) -> bool:
        """True while no policy was published or imported: nobody can say how old a token is."""
        return not self.published and not self.imported

    @property
    def timeline(self) -> int:
        """The timeline that counts: the newest started, or imported timeline 0 where no trainer ever started."""
        return self.current_timeline if self.current_timeline is not None else 0

    def knows(self, policy: Policy) -> bool:
        """True if that policy was published or imported."""
        return policy in self.published or policy in self.imported

    def as_of(self, timeline: int) -> History:
        """The history as a trainer on that timeline saw it: which tokens were abandoned there, and since which step.
        Tokens of policies that were only imported have no timeline that anybody started."""
        return replace(self, current_timeline=timeline if timeline in self.forks else None, current=None)

    def next_timeline(self) -> int:
        """Number of the next timeline: newest + 1, imported ones counted; 0 in an empty namespace."""
        return max([*self.forks, *(policy.timeline for policy in self.imported)], default=-1) + 1

    def _ancestors(self, timeline: int) -> dict[int, int | None]:
        """Each timeline on the way up, with the lowest fork step met before it (None for itself)."""
        lowest: int | None = None
        found: dict[int, int | None] = {}
        at = timeline
        while at not in found:
            found[at] = lowest
            fork = self.forks.get(at)
            if fork is None or fork.parent is None:
                break
            lowest = fork.step if lowest is None else min(lowest, fork.step)
            at = fork.parent
        return found

    def shared_until(self, timeline: int) -> int | None:
        """Last step that `timeline` shares with the current one; None without a common ancestor.

        The current timeline itself shares everything, said as a step no run reaches.
        """
        if timeline == self.timeline:
            return 2**62
        mine, theirs = self._ancestors(self.timeline), self._ancestors(timeline)
        common = next((t for t in mine if t in theirs), None)
        if common is None:
            return None
        steps = [s for s in (mine[common], theirs[common]) if s is not None]
        return min(steps) if steps else 2**62

    def is_live(self, timeline: int, step: int) -> bool:
        """True if an event of (timeline, step) lies on the current ancestor path, at or below each fork
        (design/trainer#timelines). A step that no policy can have is none of a run whose trainer has a timeline:
        whoever went on after it would find all that was ever sampled too old."""
        on_path = self._ancestors(self.timeline)
        if timeline not in on_path or (self.started and step >= LAST_POLICY):
            return False
        lowest = on_path[timeline]
        return lowest is None or step <= lowest

    def is_live_at(self, timeline: int, step: int, point: Policy) -> bool:
        """True if an event of (timeline, step) is live and stays so whichever step from `point` on a trainer goes back
        to."""
        on_path = self._ancestors(point.timeline)
        if timeline not in on_path or not self.is_live(timeline, step):
            return False
        lowest = on_path[timeline]
        return step <= (point.version if lowest is None else min(lowest, point.version))
