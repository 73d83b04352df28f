"""The manifest of a frozen buffer and its table of candidates (design/buffer#offline)."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rolloutlog.buffer.derivations.protocol import AnchorPoint
from rolloutlog.buffer.offline.candidate_table import (
    CANDIDATE,
    FrozenCandidate,
    candidate_at,
    live_candidates,
    table_of,
)
from rolloutlog.buffer.offline.cut import Cut
from rolloutlog.buffer.offline.manifest import CandidateFile, Manifest, offsets_of
from rolloutlog.contract.errors import ManifestInvalid
from rolloutlog.contract.handles import Handle
from rolloutlog.contract.topics import Topic
from tests.buffer.events_by_hand import rollout
from tests.buffer.partition_log import Owner, PartitionLog, settings_of

SETTINGS = settings_of(topics={"partitions": 2})
MADE = Manifest(
    namespace="lesson",
    begins=[2, 0],
    offsets=offsets_of([Cut(5, 3, 1), Cut(0, 0, 0)]),
    settings=SETTINGS.agreed(),
    settings_digest=SETTINGS.digest,
    derivations=["continue-compaction", "continue-tool-call"],
    kinds=["tool-call"],
    candidates=CandidateFile(count=0, sha256="0" * 64),
)
NAMES, KINDS = ("a", "b"), ("x", "y", "z")
CANDIDATES = st.builds(
    FrozenCandidate,
    st.builds(
        Handle,
        st.integers(0, 999),
        st.integers(0, 2**62 - 1),
        st.integers(0, 2**40),
        st.sampled_from(["", "last-week"]),
    ),
    st.binary(min_size=32, max_size=32),
    st.sampled_from(NAMES),
    st.builds(AnchorPoint, st.sampled_from(KINDS), st.integers(0, 2**31 - 1), st.integers(0, 2**31 - 1)),
    st.integers(0, 2**31),
    st.none() | st.floats(allow_nan=False, allow_infinity=False),
)


def test_a_manifest_comes_back_with_its_settings_and_cuts() -> None:
    found = Manifest.decode(MADE.encode(), "m")
    assert found == MADE
    assert found.encode() == MADE.encode()
    assert found.agreed().agreed() == SETTINGS.agreed()
    assert found.agreed().digest == SETTINGS.digest == found.settings_digest
    assert [found.cut(0), found.cut(1)] == [Cut(5, 3, 1), Cut(0, 0, 0)]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"version": 1}, "version 1"),
        ({"begins": [0]}, "begins at 1 offsets of 2"),
        ({"source": "a b"}, "source"),
        ({"version": None}, "version None"),
        ({"surprise": 1}, "surprise"),
        ({"namespace": "a b"}, "namespace"),
        ({"offsets": {"rollouts": [1, 2], "seeds": [1, 2]}}, "offsets"),
        ({"offsets": {"rollouts": [1], "seeds": [1], "group-events": [1]}}, "2 partitions"),
        ({"offsets": {"rollouts": [1, -2], "seeds": [1, 2], "group-events": [1, 2]}}, "offsets.rollouts.1"),
        ({"settings_digest": "x"}, "digest"),
        ({"settings": {"run": "r"}}, "digest"),
        ({"candidates": {"file": "../../etc/passwd", "count": 0, "sha256": "0" * 64}}, "candidates.file"),
        ({"candidates": {"file": "candidates.npy", "count": 0, "sha256": "0"}}, "candidates.sha256"),
    ],
)
def test_a_manifest_that_cannot_be_is_refused_by_what_is_wrong_with_it(changes: dict[str, Any], said: str) -> None:
    text = orjson.dumps(orjson.loads(MADE.encode()) | changes)
    with pytest.raises(ManifestInvalid, match=said):
        Manifest.decode(text, "m")


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b"null", b"\xff"])
def test_what_is_no_manifest_is_refused(text: bytes) -> None:
    with pytest.raises(ManifestInvalid, match="m"):
        Manifest.decode(text, "m")


def test_settings_that_are_not_installed_here_are_refused() -> None:
    from rolloutlog.contract.settings import settings_digest

    settings = SETTINGS.agreed()
    settings["buffer"]["derivations"][0]["derive"]["type"] = "nobody-has-it"
    made = MADE.model_copy(update={"settings": settings, "settings_digest": settings_digest(settings)})
    with pytest.raises(ManifestInvalid, match="nobody-has-it"):
        Manifest.decode(made.encode(), "m")


@given(st.lists(CANDIDATES, max_size=5))
def test_a_candidate_comes_back_from_the_table(candidates: list[FrozenCandidate]) -> None:
    table = table_of(candidates, NAMES, KINDS)
    assert (table.dtype, table.shape) == (CANDIDATE, (len(candidates),))
    assert [candidate_at(table, place, NAMES, KINDS, "last-week") for place in range(len(table))] == candidates


def test_frozen_candidates_are_those_that_may_be_drawn_in_the_order_in_which_draws_rank_them() -> None:
    log = PartitionLog(settings_of(buffer={"ratio": 1.0}))
    log.append(*[rollout(name, member, turns=2) for name in "ab" for member in range(2)])
    owner = Owner(log)
    owner.settle()
    found = live_candidates(owner.shard.fold)
    live = [(candidate.offset, candidate.point) for candidate in owner.shard.fold.pool.live]
    assert [(each.handle.offset, each.point) for each in found] == live
    assert len(found) == 4 - len(log.seeds), "what was drawn is drawn no more"
    assert [each.digest.hex() for each in found] == [
        log.topics[Topic.ROLLOUTS][each.handle.offset].headers.digest for each in found
    ]
