"""The CloudEvents SDK reads our events from Kafka's binding in binary mode (design/log#events)."""

from __future__ import annotations

import datetime
from typing import Any

import pytest
from cloudevents.core.base import BaseCloudEvent
from cloudevents.core.bindings.kafka import KafkaMessage, from_binary_event, to_binary_event
from hypothesis import given

from rolloutlog.contract.events.dead_letters import rejected_event
from rolloutlog.contract.events.event import Outgoing, annotation_event, cancelled_event, rollout_event, taken_event
from rolloutlog.contract.events.group_events import GroupFinal, MemberExpired, expired_event, final_event
from rolloutlog.contract.events.policy_versions import policy_imported, policy_published, timeline_started
from rolloutlog.contract.events.run import cursor_moved, run_declared, settings_recorded, trainer_recorded
from rolloutlog.contract.events.seeds import Seed, seed_cancelled_event, seed_event
from rolloutlog.contract.events.validation import read_headers, read_rollout
from rolloutlog.contract.policies import Policy
from rolloutlog.contract.record import value
from rolloutlog.contract.record.rollout import Rollout
from rolloutlog.contract.settings import Settings, TrainerSettings
from rolloutlog.contract.vocabulary import EventType, RejectReason, SeedKind, Verdict
from rolloutlog.contract.wire.rejection import Rejected
from tests.cases.raw import NOW, SOURCE, Raw
from tests.cases.rollouts import sound
from tests.cases.strategies import rollouts

BY: dict[str, Any] = {"source": SOURCE, "now": NOW}

EXPIRED = MemberExpired(group="g", group_size=2, member=1, attempt=1, timeline=0, step=3, verdict=Verdict.EXPIRED)


def read_by_sdk(made: Outgoing) -> BaseCloudEvent:
    message = KafkaMessage(headers=dict(made.headers), key=made.key, value=made.value)
    return from_binary_event(message)


def all_events() -> list[Outgoing]:
    slot = sound("g").slot
    return [
        rollout_event(sound("g"), **BY),
        annotation_event(slot, {"reward": 1.0}, **BY),
        taken_event(group="g", group_size=2, seed="s", worker="w", renewal=0, lease_ms=60_000, **BY),
        cancelled_event(group="g", group_size=2, members=[1], reason="refused", **BY),
        seed_event(Seed(id="s", kind=SeedKind.FRESH, group="g", group_size=2, env="sums"), **BY),
        seed_cancelled_event(seed="s", group="g", group_size=2, reason="attempts", **BY),
        final_event(GroupFinal(group="g", group_size=2, timeline=0, step=1, as_of=9), **BY),
        expired_event(
            MemberExpired(group="g", group_size=2, member=1, attempt=1, timeline=0, step=3, verdict=Verdict.EXPIRED),
            **BY,
        ),
        timeline_started(0, None, 0, run="r", **BY),
        policy_published(Policy(0, 1), run="r", **BY),
        policy_imported(Policy(0, 1), run="r", **BY),
        run_declared(Settings(), **BY),
        settings_recorded(Settings(), **BY),
        trainer_recorded(TrainerSettings(), **BY),
        cursor_moved("feed/sums", {"at": 3}, **BY),
        rejected_event(Raw.of(sound("g")).event(), Rejected(RejectReason.SHAPE, "why"), **BY),
    ]


@pytest.mark.parametrize("made", all_events(), ids=lambda made: dict(made.headers)["ce_type"].decode())
def test_the_sdk_reads_every_kind_of_event(made: Outgoing) -> None:
    event = read_by_sdk(made)
    ours = dict(made.headers)
    assert event.get_specversion() == "1.0"
    assert event.get_id() == ours["ce_id"].decode()
    assert event.get_type() == ours["ce_type"].decode()
    assert event.get_source() == SOURCE
    assert event.get_time() == datetime.datetime.fromtimestamp(NOW / 1000, datetime.UTC)


@given(rollouts())
def test_the_sdk_reads_the_provenance_and_the_value_of_a_rollout(rollout: Rollout) -> None:
    event = read_by_sdk(rollout_event(rollout, **BY))
    assert event.get_extension("group") == rollout.slot.group
    assert event.get_extension("member") == str(rollout.slot.member)
    assert event.get_subject() == rollout.slot.rollout
    assert event.get_datacontenttype() == value.SAFETENSORS
    body = event.get_data()
    assert isinstance(body, (bytes, str))  # the SDK makes text of bytes that happen to be UTF-8
    assert value.decode(body if isinstance(body, bytes) else body.encode()) == rollout.trajectory


def test_we_read_an_event_that_the_sdk_wrote() -> None:
    """A producer may use the SDK: its attributes are our headers, by the same names."""
    made = rollout_event(sound("g"), **BY)
    written = to_binary_event(read_by_sdk(made))
    event = Raw(made.key, tuple(written.headers.items()), written.value).event()
    assert read_headers(event, 6) is EventType.ROLLOUT_COMPLETED
    assert read_rollout(event) == sound("g")
