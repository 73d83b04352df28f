"""Partitions of keys: Kafka's murmur2, as Java's and aiokafka's clients compute it (design/log#topics)."""

from __future__ import annotations

import pytest
from aiokafka.partitioner import DefaultPartitioner
from hypothesis import given
from hypothesis import strategies as st

from rolloutlog.contract.partitions import murmur2, partition_of

JAVA = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}
"""The vectors of Kafka's own `UtilsTest.testMurmur2`, as Java's signed integers."""


@pytest.mark.parametrize(("key", "signed"), JAVA.items())
def test_murmur2_equals_kafkas_published_vectors(key: bytes, signed: int) -> None:
    assert murmur2(key) == signed % 2**32


@pytest.mark.parametrize("partitions", [1, 6, 48])
def test_a_thousand_keys_lie_where_aiokafka_puts_them(partitions: int) -> None:
    everywhere = list(range(partitions))
    for number in range(1_000):
        key = f"group-{number}".encode()
        assert partition_of(key, partitions) == DefaultPartitioner()(key, everywhere, everywhere)


@given(st.binary(min_size=1, max_size=60), st.integers(1, 1_000))
def test_any_key_lies_where_aiokafka_puts_it(key: bytes, partitions: int) -> None:
    everywhere = list(range(partitions))
    assert partition_of(key, partitions) == DefaultPartitioner()(key, everywhere, everywhere)


def test_text_and_its_bytes_are_one_key() -> None:
    assert partition_of("gruppe-ü", 48) == partition_of("gruppe-ü".encode(), 48)
