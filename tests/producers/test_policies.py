"""Publishing policies, and following them."""

from __future__ import annotations

import asyncio

import pytest

from rolloutlog.contract.errors import Fenced, InvalidRecord, NotOpen, Starved, UnknownPolicy
from rolloutlog.contract.events.policy_versions import policy_imported
from rolloutlog.contract.policies import Fork, Policy
from rolloutlog.contract.settings import Settings
from rolloutlog.contract.topics import Topic
from rolloutlog.kafka.client.connection import connection_of
from rolloutlog.kafka.read.policy_log import PolicyLog, read_policy_log
from rolloutlog.kafka.write.writing import Writer, now_ms
from rolloutlog.producers.policy_follower import PolicyFollower
from rolloutlog.producers.policy_publisher import PolicyPublisher
from rolloutlog.producers.sync_policy_follower import SyncPolicyFollower
from tests.producers.log import everything

pytestmark = pytest.mark.broker


async def test_a_first_start_publishes_version_0_in_the_same_transaction(settings: Settings) -> None:
    """timeline.started without a parent, and version 0, together (design/trainer#timelines)."""
    async with PolicyPublisher(settings, uri="s3://w/0", digest="d0") as policies:
        assert policies.current == Policy(0, 0)
        assert await policies.publish(1, uri="s3://w/1") == Policy(0, 1)
    events = await everything(settings, Topic.POLICY_VERSIONS)
    assert [event.headers.type for event in events] == ["timeline.started", "policy.published", "policy.published"]
    assert events[1].offset == events[0].offset + 1  # a marker would lie between two transactions
    assert {event.key for event in events} == {settings.run_id.encode()}
    history = (await read_policy_log(connection_of(settings))).history
    assert history.current == Policy(0, 1)
    assert history.forks == {0: Fork(None, 0)}


async def test_versions_rise(settings: Settings) -> None:
    async with PolicyPublisher(settings) as policies:
        await policies.publish(4)
        for version in (4, 3, 0, -1):
            with pytest.raises(InvalidRecord, match="after 0:4"):
                await policies.publish(version)
        assert await policies.publish(5) == Policy(0, 5)
    with pytest.raises(NotOpen):
        await policies.publish(6)


async def test_a_resumed_life_forks_a_timeline(settings: Settings) -> None:
    """Numbers come again after a resume, so a policy is a pair (design/record#policies)."""
    async with PolicyPublisher(settings) as policies:
        for version in (1, 2, 3):
            await policies.publish(version)
    async with PolicyPublisher(settings, resume=Policy(0, 2)) as policies:
        assert policies.current == Policy(1, 2)
        await policies.publish(3)
    history = (await read_policy_log(connection_of(settings))).history
    assert history.forks[1] == Fork(0, 2)
    assert history.current == Policy(1, 3)
    assert history.shared_until(0) == 2
    with pytest.raises(UnknownPolicy, match="0:9"):
        async with PolicyPublisher(settings, resume=Policy(0, 9)):
            pass


async def test_a_first_life_after_imported_policies_is_a_timeline_of_its_own(settings: Settings) -> None:
    async with Writer(connection_of(settings)) as writer:
        await writer.send(policy_imported(Policy(0, 7), run="old", source="/import", now=now_ms()))
    async with PolicyPublisher(settings) as policies:
        assert policies.current == Policy(1, 0)


async def test_a_second_publisher_fences_the_first(settings: Settings) -> None:
    """One trainer (design/trainer#one-trainer): the newer goes on, the older stops with a clear error and writes
    nothing."""
    async with PolicyPublisher(settings) as first:
        async with PolicyPublisher(settings) as second:
            with pytest.raises(Fenced, match="newer"):
                await first.publish(1)
            assert await second.publish(1) == Policy(1, 1)
        with pytest.raises(Fenced):
            await first.publish(2)
    history = (await read_policy_log(connection_of(settings))).history
    assert history.published == {Policy(0, 0), Policy(1, 0), Policy(1, 1)}


async def test_a_follower_knows_the_past_and_sees_what_comes(settings: Settings) -> None:
    async with PolicyFollower(settings) as follower:
        assert follower.current is None
        with pytest.raises(Starved, match="any policy wasn't published"):
            await follower.newest(timeout_s=0.1)
        async with PolicyPublisher(settings) as policies:
            assert (await follower.newest()).policy == follower.current == Policy(0, 0)
            with pytest.raises(Starved, match="newer than 0:0 wasn't published"):
                await follower.newer(Policy(0, 0), timeout_s=0.1)
            await policies.publish(1)
            assert (await follower.newer(Policy(0, 0))).policy == follower.current == Policy(0, 1)
            async with PolicyFollower(connection=connection_of(settings)) as late:
                assert late.current == Policy(0, 1)
                assert late.history.knows(Policy(0, 0))
        async with PolicyPublisher(settings, resume=Policy(0, 0)):
            assert (await follower.newer(Policy(0, 1))).policy == Policy(1, 0), "newer, though its version is lower"
    with pytest.raises(NotOpen):
        await follower.newest()


async def test_a_follower_knows_where_the_weights_of_every_policy_lie(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In bounded memory: of old ones the log is read again."""
    monkeypatch.setattr("rolloutlog.kafka.read.policy_log.KEPT", 2)
    before = now_ms()
    async with (
        PolicyPublisher(settings, uri="s3://w/0", digest="d0") as policies,
        PolicyFollower(settings) as follower,
    ):
        for version in (1, 2, 3):
            await policies.publish(version, uri=f"s3://w/{version}", digest=f"d{version}")
        newest = await follower.newest()
        while newest.policy != Policy(0, 3):
            newest = await follower.newer(newest.policy)
        assert (newest.uri, newest.digest) == ("s3://w/3", "d3")
        assert before <= newest.published_ms <= now_ms()
        for version in (0, 1, 2, 3):
            found = await follower.find(Policy(0, version))
            assert (found.policy, found.uri) == (Policy(0, version), f"s3://w/{version}")
            assert found.digest == f"d{version}"
        with pytest.raises(UnknownPolicy, match="0:9 was never published"):
            await follower.find(Policy(0, 9))


async def test_what_was_published_while_a_follower_opened_is_not_passed_over(settings: Settings) -> None:
    """It reads to the end that it has asked for; what the same fetch brought of later policies comes with the next."""
    async with PolicyPublisher(settings) as publisher:
        await publisher.publish(1)
    policies = PolicyLog(connection_of(settings))
    await policies._tail.open()
    await policies._read_to(2)
    assert policies.history.published == {Policy(0, 0)}
    async with asyncio.timeout(20):
        while policies.history.published != {Policy(0, 0), Policy(0, 1)}:
            await policies.poll()
    await policies.close()


async def test_who_waits_for_a_policy_is_told_when_the_follower_is_closed(settings: Settings) -> None:
    async with PolicyFollower(settings) as follower:
        waiting = asyncio.create_task(follower.newest())
        await asyncio.sleep(0)
    with pytest.raises(NotOpen):
        await waiting


def test_a_follower_without_an_event_loop(settings: Settings) -> None:
    async def publish() -> None:
        async with PolicyPublisher(settings, uri="s3://w/0") as policies:
            await policies.publish(1, uri="s3://w/1")

    with SyncPolicyFollower(settings) as follower:
        assert follower.current is None
        asyncio.run(publish())
        newest = follower.newest()
        while newest.policy != Policy(0, 1):
            newest = follower.newer(newest.policy)
        assert newest.uri == "s3://w/1"
        assert follower.find(Policy(0, 0)).uri == "s3://w/0"
        with pytest.raises(Starved):
            follower.newer(newest.policy, timeout_s=0.1)
    with pytest.raises(NotOpen):
        follower.newest()
