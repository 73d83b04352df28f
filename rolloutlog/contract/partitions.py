"""Which partition a key belongs to: Kafka's murmur2, as Java's and aiokafka's clients compute it (design/log#topics).

Guarantees: `partition_of` equals what the producers' default partitioner does with the same key bytes. Leaves out:
librdkafka's default (CRC32), which disagrees; such producers need `partitioner=murmur2_random`.
"""

from __future__ import annotations

from functools import lru_cache

_M = 0x5BD1E995
_MASK = 0xFFFFFFFF


def murmur2(data: bytes) -> int:
    """Kafka's 32-bit murmur2 with its seed, unsigned."""
    length = len(data)
    h = (0x9747B28C ^ length) & _MASK
    whole = length & ~3
    for i in range(0, whole, 4):
        k = (int.from_bytes(data[i : i + 4], "little") * _M) & _MASK
        k = ((k ^ (k >> 24)) * _M) & _MASK
        h = ((h * _M) & _MASK) ^ k
    if tail := data[whole:]:
        h = ((h ^ int.from_bytes(tail, "little")) * _M) & _MASK
    h = ((h ^ (h >> 13)) * _M) & _MASK
    return h ^ (h >> 15)


@lru_cache(1 << 14)
def partition_of(key: str | bytes, partitions: int) -> int:
    """Partition of a key among `partitions`; remembered, since a group's members come close together."""
    raw = key.encode() if isinstance(key, str) else key
    return (murmur2(raw) & 0x7FFFFFFF) % partitions
