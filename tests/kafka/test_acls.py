"""The rights of each role follow from the table of topics (design 2)."""

from __future__ import annotations

from rolloutlog.contract.settings import Settings
from rolloutlog.kafka.acls import ROLES, Right, acls

RIGHTS = acls(Settings(namespace="math"))


def of(role: str, resource: str = "topic") -> dict[str, tuple[str, ...]]:
    return {right.name: right.operations for right in RIGHTS if (right.role, right.resource) == (role, resource)}


def test_all_names_lie_under_the_namespace() -> None:
    assert {right.role for right in RIGHTS} == set(ROLES)
    assert all(right.name.startswith("math.") for right in RIGHTS)


def test_the_trainer_reads_rollouts_and_alone_writes_group_events() -> None:
    assert of("trainer")["math.rollouts"] == ("Read", "Describe", "DescribeConfigs")
    assert [right.role for right in RIGHTS if right.name == "math.group-events" and "Write" in right.operations] == [
        "trainer"
    ]
    assert of("trainer", "transactional-id") == {"math.trainer": ("Write", "Describe")}


def test_the_buffer_owns_its_index_group_and_ids() -> None:
    assert of("buffer")["math.rollout-index"] == ("Read", "Write", "Describe", "DescribeConfigs")
    assert of("buffer", "group") == {"math.buffer": ("Read", "Describe")}
    ids = next(right for right in RIGHTS if (right.role, right.resource) == ("buffer", "transactional-id"))
    assert (ids.name, ids.pattern) == ("math.buffer.", "prefixed")


def test_workers_write_rollouts_and_only_read_seeds() -> None:
    assert "Write" in of("workers")["math.rollouts"]
    assert "Write" not in of("workers")["math.seeds"]
    assert "math.rollout-index" not in of("workers")


def test_a_right_is_a_line_for_kafkas_own_tool() -> None:
    right = Right("buffer", "transactional-id", "math.buffer.", "prefixed", ("Write", "Describe"))
    assert right.command() == (
        "kafka-acls --add --allow-principal User:buffer --operation Write --operation Describe "
        "--transactional-id math.buffer. --resource-pattern-type prefixed"
    )
    assert right.as_json()["operations"] == ("Write", "Describe")
