"""Ids: functions of what they name, the same on every machine and in every version (design/log#identity)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rolloutlog.contract import ids
from rolloutlog.contract.partitions import partition_of
from rolloutlog.contract.vocabulary import SeedKind

GOLDEN = {
    "digest of nothing": (ids.digest_of(b""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"),
    "id_of": (ids.id_of("a", "b", 3), "d6236a267b2abfd7a8f3cefad5df6808"),
    "rank_of": (ids.rank_of("salt", 4, 17), 16942533694930264882),
    "rollout": (ids.rollout_id("g", 3), "g.3"),
    "attempt": (ids.attempt_id("g", 3, 2), "g.3.2"),
    "fresh seed": (ids.fresh_seed_id("sums", "task-7", 1, 0), "2d92da574a122aea3da07aed1b97ab68"),
    "eval seed": (ids.eval_seed_id("sums", "task-7", 3), "6a0d115a683d2eb7f0e29d24b4cfaf59"),
    "derived seed": (
        ids.derived_seed_id(SeedKind.CONTINUE, "g.3", 2, 5, "5e77", 0),
        "2332d158bcf3ffd70567bf41f9ac48fe",
    ),
    "derived seed without an anchor": (
        ids.derived_seed_id(SeedKind.RECHECK, "g.3", 2, None, "5e77", 1),
        "2e736f36ae07f22bd58e789f08d2ebdc",
    ),
    "member seed": (ids.member_seed_id("g", 3, 2), "299d0a7932d148cdeaa9370b2ff552e5"),
    "taken": (ids.taken_id("seed", "worker", 4), "d166f7b3c277b3a9770d16e962b8d39c"),
    "annotated": (ids.annotation_id("g.3", 2, b"{}"), "163b9628429a3ee215da573a958956cd"),
    "cancelled": (ids.cancelled_id("g", [2, 1], "refused"), "11c7cd7393637e73946846962b141d76"),
    "final": (ids.final_id(1, 40, "g", 1), "24ddef9c8d2c016924548e4963bc49ea"),
    "imported group": (ids.imported_group_id("run", "group"), "575af42fb186d1a0abc51020e424802d"),
    "derived group": (ids.derived_group_id("seed", 4, 6), "ffb5bf8318a0a6ff185358c4c9914298"),
}
"""Written down once: a change of any of them breaks every log that exists."""


@pytest.mark.parametrize(("made", "written"), GOLDEN.values(), ids=GOLDEN)
def test_ids_are_stable(made: str | int, written: str | int) -> None:
    assert made == written


@given(st.lists(st.text(max_size=6), max_size=5), st.lists(st.text(max_size=6), max_size=5))
def test_other_facts_have_another_id_wherever_the_boundaries_lie(one: list[str], other: list[str]) -> None:
    assert (ids.id_of(*one) == ids.id_of(*other)) == (one == other)


@given(st.text(min_size=1, max_size=20), st.integers(1, 64), st.data())
def test_a_derived_group_lands_on_the_partition_of_its_source(seed: str, partitions: int, data: st.DataObject) -> None:
    partition = data.draw(st.integers(0, partitions - 1))
    group = ids.derived_group_id(seed, partition, partitions)
    assert partition_of(group, partitions) == partition
    assert group == ids.derived_group_id(seed, partition, partitions)


def test_a_derived_group_takes_the_smallest_nonce() -> None:
    candidates = [ids.id_of("group", "seed", nonce) for nonce in range(200)]
    first = next(candidate for candidate in candidates if partition_of(candidate, 6) == 4)
    assert ids.derived_group_id("seed", 4, 6) == first


def test_a_rollout_keeps_its_id_over_attempts() -> None:
    assert ids.attempt_id("g", 3, 2).startswith(ids.rollout_id("g", 3) + ".")


def test_members_of_a_cancellation_have_no_order() -> None:
    assert ids.cancelled_id("g", [2, 1], "refused") == ids.cancelled_id("g", [1, 2], "refused")


@given(st.integers(0, 2**63), st.integers(0, 2**63))
def test_a_rank_is_a_number_below_two_to_the_sixty_four(k: int, j: int) -> None:
    assert 0 <= ids.rank_of("salt", k) < 2**64
    assert (ids.rank_of("salt", k) == ids.rank_of("salt", j)) == (k == j)
