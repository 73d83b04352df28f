from collections.abc import Sequence

class DefaultPartitioner:
    @classmethod
    def __call__(cls, key: bytes | None, all_partitions: Sequence[int], available: Sequence[int]) -> int: ...

def murmur2(data: bytes) -> int: ...
