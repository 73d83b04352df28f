"""The rights of each role follow from the table of topics (design/log#topics); `tests/secured` holds them against
Kafka's own
authorizer."""

from __future__ import annotations

import pytest

from rolloutlog.contract.roles import USED_BY, Role
from rolloutlog.contract.topics import Names, Topic
from rolloutlog.kafka.client.acls import Right, acls, lacking, refused

RIGHTS = acls("math")


def of(role: Role, resource: str = "topic") -> dict[str, tuple[str, ...]]:
    return {right.name: right.operations for right in RIGHTS if (right.role, right.resource) == (role, resource)}


def writers(topic: Topic) -> set[Role]:
    return {right.role for right in RIGHTS if right.name == f"math.{topic}" and "Write" in right.operations}


def test_all_names_lie_under_the_namespace() -> None:
    assert {right.role for right in RIGHTS} == set(Role) == set(USED_BY)
    assert all(right.name.startswith("math.") for right in RIGHTS)


def test_the_trainer_reads_rollouts_and_alone_writes_group_events() -> None:
    assert of(Role.TRAINER)["math.rollouts"] == ("Read", "DescribeConfigs")
    assert writers(Topic.GROUP_EVENTS) == {Role.TRAINER}
    assert of(Role.TRAINER, "transactional-id") == {"math.trainer": ("Write",)}


def test_the_buffer_owns_its_index_group_and_ids() -> None:
    assert of(Role.BUFFER)["math.rollout-index"] == ("Read", "Write", "DescribeConfigs")
    assert of(Role.BUFFER, "group") == {"math.buffer": ("Read",)}
    ids = next(right for right in RIGHTS if (right.role, right.resource) == (Role.BUFFER, "transactional-id"))
    assert (ids.name, ids.pattern) == ("math.buffer.", "prefixed")


def test_workers_write_rollouts_and_only_read_seeds_and_which_are_wanted() -> None:
    assert "Write" in of(Role.WORKERS)["math.rollouts"]
    assert "Write" not in of(Role.WORKERS)["math.seeds"]
    assert "Write" not in of(Role.WORKERS)["math.rollout-index"]


def test_only_who_has_facts_of_the_run_to_tell_writes_it() -> None:
    assert writers(Topic.RUN) == {Role.OPERATOR, Role.IMPORTERS, Role.FEEDERS, Role.TRAINER, Role.REPLAY, Role.GC}


def test_gc_alone_deletes_and_only_where_records_are_counted() -> None:
    deletes = {(right.role, right.name) for right in RIGHTS if "Delete" in right.operations}
    collected = {(Role.GC, f"math.{topic}") for topic in (Topic.ROLLOUTS, Topic.SEEDS, Topic.ROLLOUT_INDEX)}
    assert deletes == {(Role.OPERATOR, "math."), *collected}
    assert of(Role.GC, "transactional-id") == {"math.gc": ("Write",)}


@pytest.mark.parametrize("role", [Role.AUDIT, Role.PEOPLE])
def test_who_only_looks_may_only_read(role: Role) -> None:
    assert {right.operations for right in RIGHTS if (right.role, right.resource) == (role, "topic")} == {("Read",)}


def test_a_right_is_a_line_for_kafkas_own_tool() -> None:
    right = Right(Role.BUFFER, "transactional-id", "math.buffer.", "prefixed", ("Write", "Describe"))
    assert right.command() == (
        "kafka-acls --add --allow-principal User:buffer --operation Write --operation Describe "
        "--transactional-id math.buffer. --resource-pattern-type prefixed"
    )
    assert right.as_json()["operations"] == ("Write", "Describe")


def test_a_refusal_names_user_rights_and_role() -> None:
    names = Names("math")
    lacks = lacking(names, Role.AUDIT, [(Topic.ROLLOUTS, frozenset({"Read"})), (Topic.RUN, frozenset({"Describe"}))])
    assert refused(names, Role.AUDIT, "alice", lacks).message == (
        "user alice lacks Read on topic math.run, which the role audit needs"
    )
    assert refused(names, None, None, []).message == "this client lacks a right"
