"""Events that we write: complete headers, the right key, and the same id for the same facts (design/log#events)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import orjson
import pytest
from hypothesis import given

from rolloutlog.contract.events.dead_letters import (
    NO_KEY,
    derivation_rejected_event,
    rejected_event,
    rejected_line,
    rejected_place,
)
from rolloutlog.contract.events.event import (
    SCHEMA,
    Event,
    Outgoing,
    annotation_event,
    cancelled_event,
    rollout_event,
    taken_event,
    time_text,
)
from rolloutlog.contract.events.rollouts import read_annotation, read_cancelled, read_taken
from rolloutlog.contract.events.run import (
    check_declaration,
    cursor_moved,
    read_fact,
    run_declared,
    settings_recorded,
    trainer_recorded,
)
from rolloutlog.contract.handles import Handle
from rolloutlog.contract.ids import digest_of
from rolloutlog.contract.record import value
from rolloutlog.contract.record.rollout import Rollout
from rolloutlog.contract.record.value import JSON
from rolloutlog.contract.settings import Settings, TrainerSettings
from rolloutlog.contract.topics import INPUT_TOPICS, TOPICS, Names, Topic
from rolloutlog.contract.vocabulary import EventType, RejectReason, Status
from rolloutlog.contract.wire.headers import Headers
from rolloutlog.contract.wire.rejection import Rejected
from tests.cases.raw import NOW, SOURCE, Raw
from tests.cases.refusals import reason_of
from tests.cases.rollouts import sound
from tests.cases.strategies import rollouts

BY: dict[str, Any] = {"source": SOURCE, "now": NOW}


def headers_of(made: Outgoing) -> Headers:
    return Headers(made.headers)


# Rollouts


@given(rollouts())
def test_a_rollouts_headers_say_what_its_value_says(rollout: Rollout) -> None:
    """A consumer routes, counts and selects from the headers alone."""
    made = rollout_event(rollout, **BY)
    headers, trajectory = headers_of(made), rollout.trajectory
    assert made.key == rollout.slot.group.encode()
    assert headers.id == rollout.slot.event_id
    assert headers.status is rollout.status
    assert headers.reward == trajectory.reward
    assert headers.tokens == len(trajectory.token_ids)
    assert headers.turns == sum(trajectory.sampled_nodes)
    assert headers.branches == len(trajectory.branches)
    assert (headers.oldest_policy, headers.newest_policy) == (trajectory.policy_span or (None, None))
    assert headers.digest == digest_of(made.value)


@pytest.mark.parametrize("status", Status)
def test_the_type_says_how_the_attempt_ended(status: Status) -> None:
    made = rollout_event(Rollout(sound("g").slot, sound("g").trajectory, status), **BY)
    assert headers_of(made).type == f"rollout.{status}"


def test_a_pending_reward_is_absent() -> None:
    assert headers_of(rollout_event(sound("g", reward=None), **BY)).reward is None


def test_a_retry_writes_the_same_event_whenever_it_is() -> None:
    first = rollout_event(sound("g"), source=SOURCE, now=NOW)
    again = rollout_event(sound("g"), source=SOURCE, now=NOW + 60_000)
    assert (headers_of(first).id, first.value) == (headers_of(again).id, again.value)
    assert headers_of(rollout_event(sound("g", attempt=2), **BY)).id != headers_of(first).id


def test_a_body_that_is_there_already_is_not_encoded_again() -> None:
    rollout = sound("g")
    assert rollout_event(rollout, body=value.encode(rollout.trajectory), **BY) == rollout_event(rollout, **BY)


def test_the_size_is_what_the_topics_limit_counts() -> None:
    made = Outgoing(Topic.ROLLOUTS, b"key", [("name", b"text")], b"value")
    assert made.size == len("key" + "name" + "text" + "value")


# Small events


def test_an_annotation_names_its_attempt_and_is_said_once() -> None:
    made = annotation_event(sound("g", attempt=3).slot, {"reward": 0.5, "judge": "x"}, **BY)
    other_order = annotation_event(sound("g", attempt=3).slot, {"judge": "x", "reward": 0.5}, **BY)
    assert headers_of(made).attempt == 3
    assert made == other_order
    assert read_annotation(Raw.of(made).event()) == {"reward": 0.5, "judge": "x"}


@pytest.mark.parametrize("body", [b'{"reward": "1"}', b'{"reward": true}', b'{"reward": 1e999}', b"[]", b"{", b"\xff"])
def test_an_annotation_with_another_reward_is_rejected(body: bytes) -> None:
    raw = Raw.of(annotation_event(sound("g").slot, {}, **BY)).holding(body, value.JSON)
    assert reason_of(lambda: read_annotation(raw.event())) in (RejectReason.SHAPE, RejectReason.NOT_JSON)


def test_a_take_and_its_renewals_are_different_events() -> None:
    made = [
        taken_event(group="g", group_size=2, seed="s", worker="w", renewal=n, lease_ms=60_000, **BY) for n in range(3)
    ]
    assert len({headers_of(event).id for event in made}) == 3
    assert [read_taken(Raw.of(event).event()).renewal for event in made] == [0, 1, 2]


def test_a_cancellation_lists_members_in_order() -> None:
    made = cancelled_event(group="g", group_size=4, members=[3, 1], reason="refused", **BY)
    said = read_cancelled(Raw.of(made).event())
    assert (said.members, said.reason) == ((1, 3), "refused")


@pytest.mark.parametrize("members", [[4], [-1], [True], ["1"], "1", None, []])
def test_a_cancellation_of_others_than_members_is_rejected(members: Any) -> None:
    made = Raw.of(cancelled_event(group="g", group_size=4, members=[1], reason="refused", **BY))
    raw = made.holding(orjson.dumps({"members": members, "reason": "refused"}), value.JSON)
    assert reason_of(lambda: read_cancelled(raw.event())) is RejectReason.SHAPE


# The run


def test_the_run_is_declared_with_what_cannot_change() -> None:
    settings = Settings()
    body = orjson.loads(run_declared(settings, **BY).value)
    assert (body["partitions"], body["max_message_bytes"]) == (6, 8 << 20)
    assert body["settings"] == settings.digest
    recorded = settings_recorded(settings, **BY)
    assert recorded.key == f"settings/{settings.digest}".encode()
    assert orjson.loads(recorded.value) == settings.agreed()


def test_a_trainers_settings_lie_under_a_digest_of_their_own() -> None:
    trainer = TrainerSettings(batch_groups=3)
    recorded = trainer_recorded(trainer, **BY)
    assert recorded.key == f"settings/{trainer.digest}".encode()
    assert TrainerSettings.of_record(orjson.loads(recorded.value)["trainer"]) == trainer


@pytest.mark.parametrize("changed", [{}, {"buffer": []}, {"run": "other"}, {"trainer": {}}, {"trainer": 5}])
def test_settings_are_those_of_their_digest_or_none(changed: dict[str, Any]) -> None:
    made = Raw.of(settings_recorded(Settings(), **BY))
    assert read_fact(made.event())[1] == Settings().agreed()
    body = orjson.dumps(Settings().agreed() | changed if changed else {})
    assert reason_of(lambda: read_fact(made.holding(body, JSON).event())) is RejectReason.DIGEST


def test_settings_nested_too_deep_to_be_written_are_nobodys() -> None:
    made = Raw.of(settings_recorded(Settings(), **BY)).holding(b'{"a":' * 300 + b"1" + b"}" * 300, JSON)
    assert reason_of(lambda: read_fact(made.event())) is RejectReason.SHAPE


@pytest.mark.parametrize("key", [b"run", b"cursor/feed", b"step/0", b"\xff", None])
def test_a_fact_of_the_run_lies_under_a_key_of_its_kind(key: bytes | None) -> None:
    made = replace(Raw.of(settings_recorded(Settings(), **BY)), key=key)
    assert reason_of(lambda: read_fact(made.event())) is RejectReason.KEY


@pytest.mark.parametrize(
    "changed",
    [{"partitions": 5}, {"partitions": 0}, {"partitions": True}, {"run": "other"}, {"max_message_bytes": "9"}],
)
def test_a_declaration_says_what_its_settings_say(changed: dict[str, Any]) -> None:
    body: dict[str, Any] = orjson.loads(run_declared(Settings(), **BY).value)
    check_declaration(body, Settings().agreed())
    for said, settings in ((body | changed, Settings().agreed()), (body, {})):
        assert reason_of(lambda said=said, settings=settings: check_declaration(said, settings))


def test_a_cursor_has_one_key_so_that_the_newest_stands() -> None:
    at = [cursor_moved("feed/sums", {"epoch": 0, "at": place}, **BY) for place in (1, 2)]
    assert at[0].key == at[1].key == b"cursor/feed/sums"
    assert headers_of(at[0]).id != headers_of(at[1]).id


# Dead letters


def test_a_dead_letter_has_reason_handle_headers_and_digest_but_not_the_value() -> None:
    event = Raw.of(sound("g")).but({"env": b"sums\xff"}).event(offset=7)
    made = rejected_event(event, Rejected(RejectReason.HEADER_MALFORMED, "env isn't text"), **BY)
    body = orjson.loads(made.value)
    assert (made.topic, made.key) == (Topic.DEAD_LETTERS, b"g")
    assert headers_of(made).reason == body["reason"] == "header-malformed"
    assert (body["topic"], body["partition"], body["offset"]) == ("rollouts", event.partition, 7)
    assert body["size"] == len(event.value or b"")
    assert body["digest"] == digest_of(event.value or b"")
    assert body["headers"]["ce_env"] == "sums\\xff"
    assert body["detail"] == "env isn't text"
    assert len(made.value) < 2_000


def test_a_dead_letter_of_a_null_record_without_a_key_can_be_written() -> None:
    made = rejected_event(Raw(None, (), None).event(), Rejected(RejectReason.VALUE_NULL, "null"), **BY)
    assert made.key == NO_KEY
    assert orjson.loads(made.value)["digest"] is None


def test_two_readers_write_one_dead_letter_id_for_a_record() -> None:
    event = Raw.of(sound("g")).event(offset=7)
    ids = {headers_of(rejected_event(event, Rejected(RejectReason.SHAPE, text), **BY)).id for text in ("a", "b")}
    other = rejected_event(Raw.of(sound("g")).event(offset=8), Rejected(RejectReason.SHAPE, "a"), **BY)
    assert len(ids) == 1
    assert headers_of(other).id not in ids


def test_a_line_of_a_file_is_named_by_path_and_line() -> None:
    rejected = Rejected(RejectReason.ERA_UNKNOWN, "no format that we know")
    made = rejected_line(rejected, b"{}", digest="d", size=2, path="a.jsonl", line=3, byte=90, **BY)
    body = orjson.loads(made.value)
    assert (body["path"], body["line"], body["byte"], body["raw"]) == ("a.jsonl", 3, 90, "{}")
    assert headers_of(made).subject == "a.jsonl:3"


# Tables


def test_every_type_of_event_belongs_to_one_topic_and_has_a_schema() -> None:
    carried = [event_type for spec in TOPICS.values() for event_type in spec.types]
    assert sorted(carried) == sorted(EventType)
    assert SCHEMA.keys() == set(EventType)


def test_topics_that_one_shard_reads_have_as_many_partitions() -> None:
    assert {TOPICS[topic].partitions for topic in INPUT_TOPICS} == {None}


@pytest.mark.parametrize("topic", Topic)
def test_what_is_kept_for_ever_is_not_deleted_by_size_or_time(topic: Topic) -> None:
    configs = TOPICS[topic].configs()
    assert configs.get("retention.ms", "-1") == configs.get("retention.bytes", "-1") == "-1"
    assert ("compact" in configs["cleanup.policy"]) == (topic in (Topic.RUN, Topic.ROLLOUT_INDEX))


@pytest.mark.parametrize("topic", Topic)
def test_names_share_the_namespace_so_that_prefixed_acls_fit(topic: Topic) -> None:
    names = Names("ns")
    assert names.topic(topic) == f"ns.{topic}"
    assert names.bare(names.topic(topic)) is topic
    assert names.group("buffer") == "ns.buffer"
    assert names.transactional_id("buffer", 3) == "ns.buffer.3"


@pytest.mark.parametrize("name", ["other.rollouts", "ns.rolloutz", "rollouts", "ns"])
def test_a_foreign_topic_has_no_bare_name(name: str) -> None:
    with pytest.raises(ValueError, match=r"namespace|valid Topic"):
        Names("ns").bare(name)


@pytest.mark.parametrize(
    ("ms", "text"), [(0, "1970-01-01T00:00:00.000Z"), (1_790_000_000_123, "2026-09-21T14:13:20.123Z")]
)
def test_times_are_written_as_cloudevents_writes_them(ms: int, text: str) -> None:
    assert time_text(ms) == text


def test_a_rejected_derivation_rejects_no_record() -> None:
    """Audit and trainer count `record.rejected` alone (design/log#dead-letters)."""
    handle = Handle(2, 7, 90)
    made = derivation_rejected_event(
        handle, "node 3: `content` isn't text", group="g", rollout="g.0", digest="d", derivation=None, **BY
    )
    event = Event(made.topic, 0, 0, 0, made.key, Headers(made.headers), made.value)
    assert (event.headers.type, event.headers.reason) == ("derivation.rejected", "derivation")
    assert rejected_place(event) is None
    record = Raw.of(sound("g")).event(offset=7)
    rejected = rejected_event(record, Rejected(RejectReason.SHAPE, "x"), **BY)
    letter = Event(rejected.topic, 0, 0, 0, rejected.key, Headers(rejected.headers), rejected.value)
    assert rejected_place(letter) == (Topic.ROLLOUTS, record.handle._replace(size=0))


def test_a_dead_letter_is_small_whatever_the_headers_of_its_record() -> None:
    many = {f"tracing-{i}": b"\xff" * 2000 for i in range(300)}
    made = rejected_event(Raw.of(sound("g")).but(many).event(), Rejected(RejectReason.SHAPE, "x" * 9999), **BY)
    assert made.size < 32 * 1024, "the least limit that a topic may have is 64 KB"
