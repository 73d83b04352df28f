"""A start after a topic was lost, or restored from an older copy: nothing is trained twice, and no step is given again
(design/trainer#lost-topics)."""

from __future__ import annotations

from collections import Counter

import pytest

from rolloutlog.contract.errors import RecordsDeleted
from rolloutlog.contract.events.run import TRAINER_SOURCE, step_closed
from rolloutlog.contract.ids import id_of
from rolloutlog.contract.policies import Policy
from rolloutlog.contract.settings import Settings
from rolloutlog.contract.topics import Topic
from rolloutlog.contract.vocabulary import DropReason
from rolloutlog.kafka.client.admin import create_topics, with_admin
from rolloutlog.producers.policy_publisher import PolicyPublisher
from rolloutlog.trainer.stream.group_stream import GroupStream
from rolloutlog.trainer.stream.starting import Start
from tests.trainer.log import Log, now
from tests.trainer.test_starts import made, marks_of, steps
from tests.trainer.test_stream import drained, group, names

pytestmark = pytest.mark.broker


async def lose(log: Log, topic: Topic) -> None:
    """The topic is made anew, empty."""
    name = log.connection.names.topic(topic)
    await with_admin(log.connection, lambda admin: admin.delete_topics([name]))
    await create_topics(log.connection, log.settings)


async def silent_steps(stream: GroupStream, log: Log, *numbers: int) -> None:
    """Train the groups of these steps, one each, and publish no weights."""
    for step in numbers:
        await log.write(*group(f"g{step}", 0))
        batch = await anext(stream.batches())
        assert batch.step == step
        await stream.trained(batch)


async def test_lost_group_events_end_the_start_and_at_the_latest_end_nothing_trains_twice(settings: Settings) -> None:
    """Weights that were published would say the step; here nothing does but the marks."""
    log = await made(settings, staleness={"max_staleness": "none"})
    async with GroupStream(log.settings) as stream:
        await silent_steps(stream, log, 1, 2)
    await lose(log, Topic.GROUP_EVENTS)
    with pytest.raises(RecordsDeleted, match="which groups were trained is unknown") as caught:
        async with GroupStream(log.settings):
            pass
    assert "latest" in (caught.value.hint or "")
    async with GroupStream(log.settings, Start(latest=True)) as stream:
        await silent_steps(stream, log, 3)
    reasons = {final.group: final.reason for final in await log.finals()}
    skipped = DropReason.SKIPPED
    assert reasons == {id_of("g1"): skipped, id_of("g2"): skipped, id_of("g3"): None}
    async with GroupStream(log.settings) as stream:
        assert (stream.step, await drained(stream)) == (4, [])


async def test_a_resume_that_closed_no_step_yet_misses_the_steps_that_it_goes_on_from(settings: Settings) -> None:
    log = await made(settings)
    async with GroupStream(log.settings) as stream:
        await steps(stream, log, 1, checkpoint=True)
    async with GroupStream(log.settings, Start(resume="checkpoint")):
        pass
    await lose(log, Topic.GROUP_EVENTS)
    for start in (Start(), Start(resume="checkpoint"), Start(resume=Policy(0, 1))):
        with pytest.raises(RecordsDeleted, match="which groups were trained is unknown"):
            async with GroupStream(log.settings, start):
                pass
    async with GroupStream(log.settings, Start(resume=Policy(0, 0))) as stream:
        assert (stream.step, [names(batch) for batch in await drained(stream)]) == (1, [{id_of("g1")}])


async def test_a_resume_to_a_policy_of_which_no_step_is_left_is_refused(settings: Settings) -> None:
    """No marks are left from before that step, and its final events are gone."""
    log = await made(settings)
    async with GroupStream(log.settings) as stream:
        await steps(stream, log, 1, 2)
    await lose(log, Topic.GROUP_EVENTS)
    with pytest.raises(RecordsDeleted, match="the last step of which group-events says what was trained is 0"):
        async with GroupStream(log.settings, Start(resume=Policy(0, 1))):
            pass


async def test_rollouts_that_were_lost_are_read_from_their_beginning(
    settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    log = await made(settings, staleness={"max_staleness": "none"})
    async with GroupStream(log.settings) as stream:
        await silent_steps(stream, log, 1, 2)
    await lose(log, Topic.ROLLOUTS)
    await log.write(*group("g3"))
    async with GroupStream(log.settings) as stream:
        assert stream.step == 3
        assert [names(batch) for batch in await drained(stream)] == [{id_of("g3")}]
    assert "is passed over: rollouts/0 has nothing at" in caplog.text


async def test_a_step_whose_closing_was_lost_is_not_given_again(settings: Settings) -> None:
    """`run` was restored from an older copy, or somebody said again what it said then: the final events that follow on
    it were steps too, whether weights were published or not."""
    log = await made(settings, staleness={"max_staleness": "none"})
    async with GroupStream(log.settings) as stream:
        await silent_steps(stream, log, 1)
        old = await marks_of(log)
        await silent_steps(stream, log, 2, 3)
    await log.write(step_closed(old, source=TRAINER_SOURCE, now=now()), *group("g4"))
    async with GroupStream(log.settings) as stream:
        assert stream.step == 4
        assert [names(batch) for batch in await drained(stream)] == [{id_of("g4")}]
    finals = await log.finals()
    assert set(Counter(final.group for final in finals).values()) == {1}
    assert sorted(final.step for final in finals) == [1, 2, 3, 4]


async def test_weights_of_a_step_that_nothing_else_names_are_refused(settings: Settings) -> None:
    """Else what it trained might be trained again. Who published them by hand says which step comes next."""
    log = await made(settings, staleness={"max_staleness": "none"})
    async with GroupStream(log.settings) as stream:
        await steps(stream, log, 1)
    await log.publish(Policy(0, 9))
    with pytest.raises(RecordsDeleted, match="policy 0:9 was published") as caught:
        async with GroupStream(log.settings):
            pass
    assert "Start(step=10)" in (caught.value.hint or "")
    async with GroupStream(log.settings, Start(step=10)) as stream:
        await steps(stream, log, 10)
    async with GroupStream(log.settings) as stream:
        assert stream.step == 11


async def test_policies_that_were_published_before_any_step_count_as_steps(settings: Settings) -> None:
    log = await made(settings)
    async with PolicyPublisher(log.settings, uri="s3://w/0") as policies:
        await policies.publish(1)
    async with GroupStream(log.settings) as stream:
        assert stream.step == 2
