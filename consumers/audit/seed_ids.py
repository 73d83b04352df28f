"""Whether a seed was written twice, of however many.

Guarantees: eight bytes a seed; those alone whose eight bytes occur twice are looked at again, by their whole ids, so
the answer is exact. Leaves out: reading them (`auditor`).
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from hashlib import blake2b
from typing import NamedTuple

import numpy as np

from rolloutlog.consumers.audit.violations import Violation

HASH_BYTES = 8


class PlacedSeed(NamedTuple):
    """A `seed.emitted` by its id, its group, and where it lies."""

    id: str
    group: str
    partition: int
    offset: int


class SeedHashes:
    """Hashes of ids."""

    __slots__ = ("_hashes",)

    def __init__(self) -> None:
        self._hashes = array("Q")

    def add(self, seed: str) -> None:
        """Take an id in."""
        self._hashes.append(_hash(seed))

    def repeated(self) -> frozenset[int]:
        """Hashes that occur twice or more."""
        found, times = np.unique(np.frombuffer(self._hashes, np.uint64), return_counts=True)
        return frozenset(found[times > 1].tolist())


def is_among(seed: str, hashes: frozenset[int]) -> bool:
    """True where the hash of that id is one of them."""
    return _hash(seed) in hashes


def repeated_seeds(seeds: Iterable[PlacedSeed]) -> list[Violation]:
    """Seeds whose id occurs twice."""
    seen: set[str] = set()
    found: list[Violation] = []
    for seed in seeds:
        if seed.id in seen:
            found.append(Violation("seed-twice", seed.group, None, seed.partition, seed.offset))
        seen.add(seed.id)
    return found


def _hash(seed: str) -> int:
    return int.from_bytes(blake2b(seed.encode(), digest_size=HASH_BYTES).digest(), "little")
