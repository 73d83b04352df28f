"""The snapshot seam: anchors at nodes whose state was kept, and what names it, from the record to the seed
(decisions/replay#92)."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rolloutlog.buffer.derivations.snapshots import snapshots_of
from rolloutlog.buffer.index.row_codec import decode
from rolloutlog.buffer.index.rows import SeedRow
from rolloutlog.buffer.index.skip import Skip
from rolloutlog.buffer.sources.selection import anchors_for
from rolloutlog.contract.events.validation import read_rollout
from rolloutlog.contract.settings import DerivationSettings
from rolloutlog.contract.topics import Topic
from rolloutlog.contract.vocabulary import EventType
from tests.buffer.events_by_hand import rollout
from tests.buffer.partition_log import Owner, PartitionLog, settings_of
from tests.buffer.test_selection import row, settings

REF = {"image": "sha256:1", "cwd": None}
CONTINUE = {"name": "on", "derive": {"type": "continue", "anchor": "tool-call", "max_anchors": None}}


def kept(*nodes: int) -> dict[str, Any]:
    """Facts of a record of which the states at these nodes were kept; its tool results are nodes 3 and 5."""
    return {"record": {"info": {"snapshots": {str(node): f"ref {node}" for node in nodes}}}}


@pytest.mark.parametrize(
    ("facts", "found"),
    [
        ({}, [3, 5]),
        ({"record": {"info": {"snapshots": {}}}}, [3, 5]),
        ({"record": {"info": {"snapshots": {"3": None}}}}, [3, 5]),
        (kept(3), [3]),
        (kept(3, 5), [3, 5]),
        (kept(1), Skip.NO_SNAPSHOT),
    ],
)
def test_with_any_ref_only_anchors_that_have_one_are_offered(facts: dict[str, Any], found: list[int] | Skip) -> None:
    points = anchors_for(row(**facts), settings())
    assert (points if isinstance(points, Skip) else [point.node for point in points]) == found


def test_who_needs_no_environment_is_not_bound_by_them() -> None:
    judge = DerivationSettings.model_validate({"name": "judge", "derive": {"type": "judge"}})
    assert isinstance(anchors_for(row(**kept(1)), judge), list)


def test_the_ref_travels_in_the_seed_and_not_in_its_row() -> None:
    """A row of the index is small whatever a ref holds; who asks for a member again finds it in the origin seed."""
    log = PartitionLog(settings_of(buffer={"derivations": [CONTINUE]}))
    facts = {"info": {"snapshots": {"3": REF}}}
    log.append(*(rollout("a", member, record=facts) for member in range(2)))
    Owner(log).settle()
    seed = log.seeds[0]
    assert seed.anchor is not None
    assert (seed.anchor.node, seed.snapshot) == (3, REF)
    rows = [decode(event.value or b"") for event in log.topics[Topic.ROLLOUT_INDEX]]
    assert {row.seed.snapshot for row in rows if isinstance(row, SeedRow)} == {None}


@pytest.mark.parametrize(
    "said", [{"x": 1}, {"-1": 1}, {"01": 1}, {"99": 1}, {"3.0": 1}, {"٣": 1}, {"9" * 30: 1}, [1], "3"]
)
def test_a_malformed_index_is_told_and_the_record_stays_indexed(said: Any) -> None:
    log = PartitionLog(settings_of(buffer={"derivations": [CONTINUE]}))
    log.append(*(rollout("a", member, record={"info": {"snapshots": said}}) for member in range(2)))
    owner = Owner(log)
    owner.settle()
    letters = log.topics[Topic.DEAD_LETTERS]
    assert [letter.headers.type for letter in letters] == [EventType.DERIVATION_REJECTED] * 2
    assert "snapshots" in orjson.loads(letters[0].value or b"")["detail"]
    assert log.seeds == []
    assert owner.shard.fold.groups.resolved == 1, "its members count"


@given(st.dictionaries(st.integers(0, 5), st.integers() | st.text(max_size=3)))
def test_every_index_of_a_node_is_read(refs: dict[int, Any]) -> None:
    log = PartitionLog(settings_of())
    log.append(rollout("a", record={"info": {"snapshots": {str(node): str(ref) for node, ref in refs.items()}}}))
    trajectory = read_rollout(log.topics[Topic.ROLLOUTS][0]).trajectory
    assert snapshots_of(trajectory) == {node: str(ref) for node, ref in refs.items()}
