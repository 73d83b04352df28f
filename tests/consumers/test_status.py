"""`status` reads shard rows, ends and the last minutes of `group-events`, and says who owns what."""

from __future__ import annotations

import asyncio
import secrets
from typing import Any

import pytest

from rolloutlog.broker import EmbeddedKafka
from rolloutlog.cli.status import print_status
from rolloutlog.consumers.buffer_service import run_buffer
from rolloutlog.consumers.views.run_status import status
from rolloutlog.contract.events.event import Outgoing
from rolloutlog.contract.events.group_events import GroupFinal, MemberExpired, MemberOutcome, expired_event, final_event
from rolloutlog.contract.events.policy_versions import timeline_started
from rolloutlog.contract.events.run import step_closed
from rolloutlog.contract.events.watermarks import PartitionMarks, Watermarks
from rolloutlog.contract.policies import Policy
from rolloutlog.contract.settings import Settings
from rolloutlog.contract.vocabulary import DropReason, Verdict
from rolloutlog.kafka.loop import partition_loop
from rolloutlog.kafka.loop.partition_loop import PartitionLoop
from tests.buffer.events_by_hand import rollout
from tests.trainer.log import Log, now

pytestmark = pytest.mark.broker


@pytest.fixture
def log(kafka_broker: EmbeddedKafka) -> Log:
    settings = Settings.model_validate(
        {
            "namespace": f"status-{secrets.token_hex(4)}",
            "bootstrap_servers": kafka_broker.bootstrap_servers,
            "topics": {"partitions": 2},
        }
    )
    log = Log(settings)
    asyncio.run(log.create())
    return log


def said(group: str, reason: DropReason | None = None, timeline: int = 0) -> Outgoing:
    members = [
        MemberOutcome(
            member=member,
            attempt=1,
            status="completed",
            handle=f"0/{member}/9",
            verdict=verdict,
            trainable_tokens=5,
            reward=reward,
        )
        for member, verdict, reward in ((0, Verdict.FRESH, 1.0), (1, Verdict.PARTLY, 0.0), (2, Verdict.SURPLUS, 9.0))
    ]
    final = GroupFinal(group=group, group_size=3, timeline=timeline, step=4, as_of=9, reason=reason, members=members)
    return final_event(final, source="/test", now=now())


def test_what_the_trainer_said_lately_is_told_with_the_policy_and_its_age(log: Log) -> None:
    gone = MemberExpired(group="e", group_size=3, member=0, attempt=1, timeline=0, step=4, verdict=Verdict.EXPIRED)

    async def body() -> dict[str, Any]:
        await log.write(timeline_started(0, None, 0, run=log.settings.run_id, source="/test", now=now()))
        await log.publish(Policy(0, 0), Policy(0, 3))
        await log.write(said("a"), said("b"), said("c", DropReason.ZERO_VARIANCE), said("void", timeline=7))
        await log.write(expired_event(gone, source="/test", now=now()))
        return await status(log.settings)

    found = asyncio.run(body())
    assert (found["policy"], found["policy_age_s"] < 60) == ([0, 3], True)
    assert {name: found["recent"][name] for name in ("trained", "trainable_tokens", "reward", "step", "steps")} == {
        "trained": 2,
        "trainable_tokens": 20,
        "reward": 0.5,
        "step": 4,
        "steps": 1,
    }
    assert (found["recent"]["dropped"], found["recent"]["expired"]) == ({"zero-variance": 1}, {"expired": 1})
    assert found["groups"] is None, "no shard has counted yet"
    assert found["rates"]["group-events"] >= 5


def test_groups_are_counted_by_shard_rows_and_members_of_the_group_own_partitions(
    log: Log, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    loops: list[PartitionLoop] = []

    async def body() -> dict[str, Any]:
        await log.write(*(rollout(name, member) for name in "abc" for member in range(2)), rollout("open", 0))
        running = asyncio.create_task(run_buffer(log.settings, on_start=loops.append))
        try:
            async with asyncio.timeout(60):
                while True:
                    found = await status(log.settings)
                    lags = any(sum(shard["lag"].values()) for shard in found["shards"])
                    if found["groups"] and not lags and "waiting" in caplog.text:
                        return found
                    await asyncio.sleep(0.2)
        finally:
            loops[0].stop()
            await running

    monkeypatch.setattr(partition_loop, "IDLE_S", 0.1)
    found = asyncio.run(body())
    assert "waiting: nothing to fold of 2 partitions" in caplog.text
    assert (found["groups"]["resolved"], found["groups"]["ended"]) == (3, 0)
    assert found["groups"]["open"] >= 1
    assert [(owner["group"], owner["partitions"]) for owner in found["owners"]] == [("buffer", [0, 1])]
    assert found["owners"][0]["client"].startswith("rolloutlog-")


@pytest.mark.parametrize(("version", "lacks"), [(2, False), (1, True)], ids=["newer", "older"])
def test_that_no_weights_came_for_too_long_is_told_at_once(
    log: Log, version: int, lacks: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    """After step 4 the default, one sync period of one step, lets version 3 and 2 sample for step 5, and no older one
    (design/trainer#doomed)."""

    async def body() -> dict[str, Any]:
        run = log.settings.run_id
        await log.write(timeline_started(0, None, 0, run=run, source="/test", now=now()))
        await log.publish(Policy(0, version + 1))
        marks = Watermarks(timeline=0, step=4, partitions=(PartitionMarks(low=0, seeds=0, events=0),) * 2)
        await log.write(step_closed(marks, source="/trainer", now=now()))
        return await status(log.settings)

    found = asyncio.run(body())
    assert found["trainer"]["lacks_weights"] is lacks
    print_status(found)
    assert ("none since step 2: what workers sample now is too old for step 5" in capsys.readouterr().out) is lacks
