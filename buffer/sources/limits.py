"""What a pool keeps besides its capacity: limits by age, environment and reward (design/buffer#eviction).

Guarantees: whether a source stays depends on its own row, on later records and on later annotations of it, all of which
lie on `rollouts`, so a shard that is restored from the rows of what is left goes on as the live one does. Leaves out:
the capacity, and taking sources out (`pool`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from enum import StrEnum

from sortedcontainers import SortedList

from rolloutlog.buffer.index.rollout_row import RolloutRow
from rolloutlog.buffer.sources.source_record import SourceRecord
from rolloutlog.contract.settings import KeepSettings


class Eviction(StrEnum):
    """Why a candidate isn't kept."""

    CAPACITY = "capacity"
    AGE = "age"
    ENV_SHARE = "env-share"
    REWARD = "reward"


class Limits:
    """The limits of one pool, and where its sources stand by version and environment."""

    def __init__(self, keep: KeepSettings, capacity: int) -> None:
        self._keep = keep
        self._env_most = None if keep.env_share is None else max(1, int(keep.env_share * capacity))
        self._by_version: SortedList[tuple[int, int]] = SortedList()
        self._by_env: dict[str, SortedList[int]] = {}
        self._env_sizes: Counter[str] = Counter()

    @property
    def is_set(self) -> bool:
        """True where more than the capacity and the reward bounds what is kept."""
        return self._keep.max_age is not None or self._env_most is not None

    def takes(self, reward: float | None) -> bool:
        """True for a reward in the band; a pending one may still come to lie in it."""
        low, high = self._keep.min_reward, self._keep.max_reward
        return reward is None or ((low is None or reward >= low) and (high is None or reward <= high))

    def add(self, source: SourceRecord, row: RolloutRow) -> None:
        """The source of that record is in the pool now."""
        if self._keep.max_age is not None and row.newest is not None:
            self._by_version.add((row.newest.version, row.offset))
        if self._env_most is not None:
            self._by_env.setdefault(row.env or "", SortedList()).add(row.offset)
            self._env_sizes[row.env or ""] += source.size

    def remove(self, source: SourceRecord) -> None:
        """A source left, with the candidates that it still had."""
        if self._keep.max_age is not None and (newest := source.row.newest) is not None:
            self._by_version.remove((newest.version, source.offset))
        if self._env_most is not None:
            self._by_env[source.env].remove(source.offset)
            self.shrink(source, source.size)

    def shrink(self, source: SourceRecord, count: int) -> None:
        """So many candidates of a source left."""
        if self._env_most is not None:
            self._env_sizes[source.env] -= count

    def aged(self, row: RolloutRow) -> Iterator[int]:
        """Offsets of sources that are too old now that this record came; each must leave before the next is asked."""
        if self._keep.max_age is None or row.newest is None:
            return
        while self._by_version and self._by_version[0][0] < row.newest.version - self._keep.max_age:
            yield self._by_version[0][1]

    def crowded(self, row: RolloutRow) -> Iterator[int]:
        """Offsets of sources of its environment that must give a candidate away now, each before the next is asked."""
        env = row.env or ""
        while self._env_most is not None and self._env_sizes[env] > self._env_most:
            yield self._by_env[env][0]
