"""Settings: what can't work is refused when it is read, a digest names what a run agrees on (design/log#settings)."""

from __future__ import annotations

import math
import typing
from collections.abc import Iterator
from typing import Any, cast

import orjson
import pytest
from pydantic import BaseModel, ValidationError

from rolloutlog.contract import settings
from rolloutlog.contract.settings import (
    Deadline,
    DerivationSettings,
    RerollMembers,
    Section,
    Settings,
    Staleness,
    TrainerSettings,
)

REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"namespcae": "x"}, "Extra inputs"),
    ({"trainer": {"stalenes": {}}}, "Extra inputs"),
    ({"namespace": ""}, "pattern"),
    ({"namespace": "has.dot"}, "pattern"),
    ({"namespace": "x" * 101}, "pattern"),
    ({"topics": {"partitions": 0}}, "greater than or equal to 1"),
    ({"topics": {"partitions": 1001}}, "less than or equal to 1000"),
    ({"topics": {"max_message_bytes": 1000}}, "greater than or equal to 65536"),
    ({"topics": {"retention_ms": -2}}, "greater than or equal to -1"),
    ({"topics": {"replication": 0}}, "greater than or equal to 1"),
    ({"buffer": {"ratio": -0.1}}, "greater than or equal to 0"),
    ({"buffer": {"capacity": 0}}, "greater than or equal to 1"),
    ({"buffer": {"lease_s": 0}}, "greater than 0"),
    ({"buffer": {"max_attempts": 0}}, "greater than or equal to 1"),
    ({"buffer": {"derivations": [{"name": "a"}, {"name": "a"}]}}, "two derivations have one name"),
    (
        {"buffer": {"derivations": [{"name": "a", "share": 0.5}, {"name": "b"}]}},
        "where one derivation has a share of the ratio all must, and b has none",
    ),
    (
        {"buffer": {"derivations": [{"name": "a", "share": 0.5}, {"name": "b", "share": 0.4}]}},
        "the shares of the derivations make 0.9 together, not 1",
    ),
    ({"buffer": {"derivations": [{"name": "a", "share": 0}]}}, "greater than 0"),
    ({"buffer": {"derivations": [{"name": "Continue It"}]}}, "pattern"),
    ({"buffer": {"derivations": [{"name": "a", "derive": {"type": "imagine"}}]}}, "continue"),
    ({"buffer": {"derivations": [{"name": "a", "max_draws": 0}]}}, "greater than or equal to 1"),
    ({"buffer": {"derivations": [{"name": "a", "select": {"source_envs": []}}]}}, "source_envs is empty"),
    (
        {"buffer": {"derivations": [{"name": "a", "select": {"min_source_reward": 1, "max_source_reward": 0}}]}},
        "min_source_reward 1.0 is above max_source_reward 0.0",
    ),
    ({"trainer": {"batch_groups": 0}}, "greater than or equal to 1"),
    ({"trainer": {"sync_period": 0}}, "greater than or equal to 1"),
    ({"trainer": {"order": "newest"}}, "oldest"),
    ({"trainer": {"straggler": {"type": "forget"}}}, "wait"),
    ({"trainer": {"straggler": {"type": "deadline"}}}, "seconds"),
    ({"trainer": {"buffer_groups": 7}}, "below a batch of 8"),
    ({"trainer": {"max_open": 7}}, "below a batch of 8"),
    ({"trainer": {"max_open": 17}}, "groups would expire; set overcommit"),
    ({"trainer": {"staleness": {"max_staleness": -1}}}, "greater than or equal to 0"),
    ({"trainer": {"staleness": {"max_token_staleness": 1, "on_expire": "drop-group"}}}, "never masks anything"),
    ({"trainer": {"staleness": {"max_token_staleness": 2, "on_expire": "drop-group"}}}, "never masks anything"),
    ({"trainer": {"staleness": {"max_token_staleness": 0}}}, "set on_expire"),
    ({"trainer": {"staleness": {"max_staleness": None, "max_token_staleness": 3}}}, "set on_expire"),
    ({"trainer": {"max_passes": 0}}, "greater than or equal to 1"),
    ({"trainer": {"straggler": {"type": "over-provision"}}}, "group_train"),
    ({"trainer": {"straggler": {"type": "deadline", "seconds": 5, "k": 1}}}, "min_survivors 2 would drop them"),
    ({"trainer": {"staleness": {"max_staleness": None, "on_expire": "drop-group"}}}, "never does anything"),
    ({"trainer": {"staleness": {"on_expire": "forget"}}}, "reroll-members"),
    ({"trainer": {"staleness": {"on_expire": {"type": "drop-members", "tries": 2}}}}, "Extra inputs"),
    ({"trainer": {"order": "windowed"}}, "window"),
    (
        {"trainer": {"environments": {"a": {"staleness": {"on_expire": {"type": "reroll-group", "tail_batch": 3}}}}}},
        "environment a has a tail_batch of its own",
    ),
    ({"trainer": {"order": {"type": "windowed", "window": 10}}}, "leaves 7 open groups, below a batch of 8"),
    ({"trainer": {"order": {"type": "windowed", "window": 5000}, "overcommit": True}}, "above buffer_groups 4096"),
    ({"trainer": {"environments": {"a": {"weight": 1}, "b": {}}}}, "environments b have no weight"),
    ({"trainer": {"environments": {"a": {"weight": 99}, "b": {"weight": 1}}}}, "b gets none of the 8 groups"),
    ({"trainer": {"environments": {"a": {"weight": 0}}}}, "every environment has weight 0"),
    (
        {"trainer": {"environments": {"a": {"weight": 1}}, "order": {"type": "windowed", "window": 2}}},
        "order windowed doesn't go with weights",
    ),
    ({"trainer": {"straggler": {"type": "over-provision", "group_train": 1}}}, "min_survivors 2 would drop them"),
    ({"buffer": {"derivations": [{"name": "a", "derive": {"max_anchors": 2}}]}}, "seeds every restart"),
    ({"buffer": {"derivations": [{"name": "a", "group_size": 4097}]}}, "less than or equal to 4096"),
    ({"trainer": {"batch_groups": "none"}}, "valid integer"),
]


@pytest.mark.parametrize(("given", "said"), REFUSED, ids=lambda case: case if isinstance(case, str) else "")
def test_what_cannot_work_is_refused_and_named(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=r"(?s).*" + said.replace("(", r"\(").replace(")", r"\)")):
        Settings.model_validate(given)


def numbers(model: type[BaseModel], prefix: str = "") -> Iterator[tuple[str, type]]:
    """Dotted name of every number, and whether it is whole."""
    for name, field in model.model_fields.items():
        inner = field.annotation
        if isinstance(inner, type) and issubclass(inner, BaseModel):
            yield from numbers(inner, f"{prefix}{name}.")
        for kind in (inner, *typing.get_args(inner)):
            if kind in (int, float):
                yield prefix + name, kind


def nested(name: str, value: object) -> dict[str, Any]:
    for part in reversed(name.split(".")):
        value = {part: value}
    return cast("dict[str, Any]", value)


NUMBERS = [
    *((Settings, name, kind) for name, kind in numbers(Settings)),
    *((DerivationSettings, name, kind) for name, kind in numbers(DerivationSettings)),
    (Deadline, "seconds", float),
]


@pytest.mark.parametrize(("section", "name", "kind"), NUMBERS, ids=str)
def test_every_number_is_finite_and_within_reason(section: type[BaseModel], name: str, kind: type) -> None:
    """Infinity and NaN of each, and what no clock or counter holds: a lease of 1e300 seconds ended a worker later."""
    absurd = [10**30] if kind is int else [math.inf, -math.inf, math.nan, "inf", "NaN"]
    if kind is float and "reward" not in name:
        absurd += [1e300, "1e300"]
    for value in absurd:
        with pytest.raises(ValidationError) as refusal:
            section.model_validate(nested(name, value))
        assert tuple(name.split(".")) in [problem["loc"] for problem in refusal.value.errors()]


OPTIONAL = [
    "run", "bootstrap_servers", "command_config", "blobs", "topics.replication", "trainer.max_open",
    "trainer.staleness.max_staleness", "trainer.staleness.max_token_staleness", "trainer.staleness.on_expire",
    "trainer.staleness.on_unknown",
]  # fmt: skip


@pytest.mark.parametrize("name", OPTIONAL)
def test_none_unsets_every_optional_setting(name: str) -> None:
    """Also those whose default isn't unset, in the sections of lists too."""
    found: Any = Settings.model_validate(nested(name, "none"))
    for part in name.split("."):
        found = getattr(found, part)
    assert found is None
    derived = DerivationSettings.model_validate(
        {"name": "a", "budget": "none", "derive": {"anchor": "tool-call", "max_anchors": "none"}}
    )
    assert (derived.budget, derived.derive.model_dump()["max_anchors"]) == (None, None)


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"trainer": {"max_open": 16}},
        {"trainer": {"max_open": 99, "overcommit": True}},
        {"trainer": {"staleness": {"max_staleness": None}, "max_open": 500}},
        {"trainer": {"staleness": {"max_staleness": 2, "max_token_staleness": 1, "on_expire": "reroll-members"}}},
        {"trainer": {"staleness": {"max_staleness": None, "max_token_staleness": 0, "on_expire": "keep-as-baseline"}}},
        {"trainer": {"straggler": {"type": "deadline", "seconds": 30, "k": 3}}},
        {"buffer": {"derivations": []}},
    ],
)
def test_what_works_is_taken(given: dict[str, Any]) -> None:
    made = Settings.model_validate(given).model_dump(mode="json")
    assert Settings.model_validate(made).model_dump(mode="json") == made


def test_defaults_are_those_that_the_command_line_promises() -> None:
    """The open groups that defaults allow (design/staleness#open-groups)."""
    made = Settings()
    assert (made.topics.partitions, made.trainer.batch_groups, made.trainer.sync_period) == (6, 8, 1)
    assert made.trainer.staleness == Staleness(max_staleness=1, max_token_staleness=None)
    assert (made.buffer.lease_s, made.buffer.ratio, made.buffer.capacity, made.buffer.max_attempts) == (60, 1, 4096, 3)
    assert made.trainer.open_groups == 16
    assert made.trainer.straggler.type == "wait"
    assert made.run_id == made.namespace == "rolloutlog"
    assert made.topics.max_record_bytes == made.topics.max_message_bytes - 4096


@pytest.mark.parametrize(
    ("max_open", "shards", "derived"), [(16, 2, 2), (16, 6, 6), (16, 48, 8), (8, 6, 0), (88, 6, 20)], ids=str
)
def test_every_shard_may_derive_where_there_is_room(max_open: int, shards: int, derived: int) -> None:
    """A quarter of what exceeds B = 8, or one a shard; B are always left for fresh groups."""
    made = Settings.model_validate({"trainer": {"max_open": max_open, "overcommit": True}})
    assert made.trainer.derived_open(shards) == derived


@pytest.mark.parametrize(("n", "w", "bound"), [(0, 1, 8), (1, 1, 16), (1, 4, 40), (3, 2, 56), (None, 4, None)], ids=str)
def test_open_groups_are_bounded_so_that_none_expires(n: int | None, w: int, bound: int | None) -> None:
    """B (n W + 1): the i-th open group is trained by step t + i // B, with a policy at most W - 1 steps behind."""
    assert TrainerSettings(sync_period=w, staleness=Staleness(max_staleness=n)).open_bound == bound


def test_a_deployment_may_differ_in_what_is_its_own() -> None:
    own: dict[str, Any] = {
        "bootstrap_servers": "elsewhere:9092",
        "command_config": "client.properties",
        "blobs": "s3://bucket",
        "buffer": {"cache_bytes": 0},
        "trainer": {"starve_s": 5, "buffer_bytes": 1 << 21, "buffer_groups": 16},
    }
    made = Settings.model_validate(own)
    assert (made.digest, made.trainer.digest) == (Settings().digest, TrainerSettings().digest)


@pytest.mark.parametrize(
    "changed",
    [
        {"namespace": "other"}, {"run": "other"}, {"topics": {"partitions": 12}}, {"buffer": {"salt": "1"}},
        {"buffer": {"ratio": 0.5}}, {"buffer": {"derivations": []}}, {"buffer": {"capacity": 7}},
        {"buffer": {"lease_s": 7}}, {"buffer": {"max_attempts": 7}},
    ],
    ids=str,
)  # fmt: skip
def test_what_a_run_must_agree_on_changes_the_digest(changed: dict[str, Any]) -> None:
    assert Settings.model_validate(changed).digest != Settings().digest
    assert Settings.model_validate(changed).trainer.digest == TrainerSettings().digest


@pytest.mark.parametrize(
    "changed",
    [
        {"batch_groups": 4}, {"sync_period": 2}, {"staleness": {"max_staleness": 2}}, {"max_open": 12},
        {"straggler": {"type": "deadline", "seconds": 5}}, {"order": "arrival"}, {"min_survivors": 1},
        {"staleness": {"on_expire": "drop-group"}}, {"order": "freshest"}, {"filters": ["f"]},
        {"order": {"type": "windowed", "window": 4}}, {"environments": {"a": {"weight": 1, "staleness": {}}}},
        {"drop_zero_variance": False}, {"overcommit": True},
    ],
    ids=str,
)  # fmt: skip
def test_what_a_trainer_may_change_has_a_digest_of_its_own(changed: dict[str, Any]) -> None:
    """It judges by other settings from its next start on, and the run stays the run (design/log#settings)."""
    made = Settings.model_validate({"trainer": changed})
    assert made.digest == Settings().digest
    assert made.trainer.digest != TrainerSettings().digest
    again = TrainerSettings.of_record(orjson.loads(orjson.dumps(made.trainer.recorded())))
    assert again == made.trainer


def test_a_word_stands_for_a_type_with_its_defaults() -> None:
    """As older records say it, and as one writes it in a variable."""
    long = {"order": {"type": "freshest"}, "straggler": {"type": "wait"}}
    short: dict[str, Any] = {"order": "freshest", "straggler": "wait"}
    assert TrainerSettings.model_validate(long).digest == TrainerSettings.of_record(short).digest
    assert Staleness.model_validate({"on_expire": "drop-group"}).expiry.type == "drop-group"
    assert Staleness().expiry == RerollMembers()


def test_a_window_leaves_fewer_groups_open() -> None:
    """Each that may pass by is one more that a group waits for (design/staleness#open-groups)."""
    made = TrainerSettings.model_validate({"order": {"type": "windowed", "window": 5}})
    assert made.open_bound == made.open_groups == 16 - 4


def test_the_strictest_environment_bounds_the_open_groups() -> None:
    made = TrainerSettings.model_validate({"environments": {"a": {"staleness": {"max_staleness": 0}}}})
    assert (made.open_bound, made.staleness_of("a").max_staleness, made.staleness_of(None).max_staleness) == (8, 0, 1)


def test_settings_of_a_batch_above_our_own_budget_are_read_all_the_same() -> None:
    large = TrainerSettings(batch_groups=10_000, buffer_groups=10_000)
    assert TrainerSettings.of_record(large.recorded()).open_groups == 20_000


def test_the_digest_depends_on_what_is_said_not_on_how() -> None:
    spelled = Settings.model_validate(
        {"trainer": {"sync_period": 1, "batch_groups": 8}, "topics": {"partitions": 6}, "namespace": "rolloutlog"}
    )
    assert spelled.digest == Settings().digest
    assert Settings.model_validate_json(Settings().model_dump_json()).digest == Settings().digest


def test_settings_do_not_change_once_they_are_read() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        Settings().namespace = "other"


SECTIONS = [kind for kind in vars(settings).values() if isinstance(kind, type) and issubclass(kind, Section)]


@pytest.mark.parametrize("section", SECTIONS, ids=lambda section: section.__name__)
def test_every_section_says_what_it_is_and_takes_nothing_unknown(section: type[Section]) -> None:
    assert section.__doc__
    assert [name for name, field in section.model_fields.items() if not field.description] == []
    assert section.model_config.get("extra") == "forbid"
