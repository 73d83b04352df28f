"""Dead letters tried again: what is sound now counts exactly once, and the rest is told (design/groups#retry)."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from rolloutlog.broker import EmbeddedKafka
from rolloutlog.buffer.group.group import Group
from rolloutlog.buffer.group.member import Record
from rolloutlog.consumers.audit.auditor import Audit, audit
from rolloutlog.consumers.reindexing import reindex
from rolloutlog.consumers.retrying.letter import Letter, LetterFilter
from rolloutlog.consumers.retrying.outcome import ADVICE, Outcome, Retried
from rolloutlog.consumers.retrying.rejected_rollout import GroupsNow, SoundNow
from rolloutlog.consumers.retrying.retry_service import retry
from rolloutlog.consumers.views.shard_view import shard_views
from rolloutlog.contract.errors import Fenced
from rolloutlog.contract.events.dead_letters import derivation_rejected_event, rejected_event, rejected_line
from rolloutlog.contract.events.event import Event, Outgoing, rollout_event
from rolloutlog.contract.handles import Handle
from rolloutlog.contract.policies import Policy
from rolloutlog.contract.record.rollout import Rollout
from rolloutlog.contract.record.slot import Slot
from rolloutlog.contract.settings import Settings
from rolloutlog.contract.topics import Topic
from rolloutlog.contract.vocabulary import EventType, RejectReason, Status
from rolloutlog.contract.wire.claims import CLAIM
from rolloutlog.contract.wire.headers import CONTENT_TYPE, Headers
from rolloutlog.contract.wire.rejection import Rejected
from rolloutlog.kafka.blobs.blob_store import BlobStore
from rolloutlog.trainer.stream.group_stream import GroupStream
from rolloutlog.trainer.stream.starting import Start
from tests.buffer.events_by_hand import annotated
from tests.buffer.partition_log import NOW, group_id
from tests.consumers.account import dead_letters
from tests.consumers.test_buffer_service import OPTIONS, drain
from tests.live.shell import Shell
from tests.trainer import desk
from tests.trainer.log import Log

SOURCE = "/tests"
ALL = LetterFilter()
CONFIG = """
topics = {partitions = 1}
trainer = {batch_groups = 1, max_open = 64, overcommit = true}
"""


@pytest.fixture
def log(settings: Settings, tmp_path: Path) -> Log:
    """A run of its own with a blob store, groups of which train whatever their rewards are."""
    trainer = settings.trainer.model_copy(update={"drop_zero_variance": False})
    made = Log(settings.model_copy(update={"blobs": str(tmp_path / "blobs"), "trainer": trainer}))
    asyncio.run(made.create())
    return made


async def claimed(log: Log, one: Rollout) -> tuple[Outgoing, Path]:
    """The record with its body in the store, and the file of that."""
    made = rollout_event(one, source=SOURCE, now=NOW)
    before = set(log.blob_files())
    claim = await BlobStore(str(log.settings.blobs)).put(made.value, dict(made.headers)[CONTENT_TYPE].decode())
    headers = [(name, CLAIM.encode() if name == CONTENT_TYPE else text) for name, text in made.headers]
    (body,) = set(log.blob_files()) - before
    return replace(made, headers=headers, value=claim.encode()), body


async def rejected(log: Log, *names: str) -> list[Path]:
    """Groups of which member 0 is sound and the body of member 1 isn't there; where those bodies are meanwhile."""
    hidden: list[Path] = []
    for number, name in enumerate(names):
        first, second = (desk.rollout(m, 0, group=group_id(name), reward=2.0 * number + m) for m in range(2))
        made, body = await claimed(log, second)
        hidden.append(body.rename(body.with_name(f"{body.name}.away")))
        await log.write(first, made)
    await drain(log.settings)
    assert [letter["reason"] for letter in await dead_letters(log.connection)] == ["claim-missing"] * len(names)
    return hidden


def mend(hidden: list[Path]) -> None:
    for body in hidden:
        body.rename(body.with_suffix(""))


def outcomes(found: list[Retried]) -> list[Outcome]:
    return [one.outcome for one in found]


async def copies(log: Log) -> Counter[str]:
    """How often each record of member 1 is on the log."""
    return Counter(str(e.headers.id) for e in await log.read(Topic.ROLLOUTS) if e.headers.member == 1)


async def audited(log: Log) -> Audit:
    found = await audit(log.settings)
    assert found.ok, found.as_json()
    return found


async def train(log: Log, step: int | None = None) -> int:
    """Groups that are trained."""
    count = 0
    async with GroupStream(log.settings, Start(step=step)) as stream:
        async for batch in stream.batches(drain=True):
            count += len(batch.groups)
            await stream.trained(batch)
    return count


@pytest.mark.broker
async def test_a_record_that_was_mended_counts_once_and_its_group_is_trained(log: Log) -> None:
    await log.bring(0)
    hidden = await rejected(log, "a")
    (still,) = await retry(log.settings, ALL)
    assert (still.outcome, still.why[:13]) == (Outcome.FAILS, "claim-missing")
    mend(hidden)
    assert outcomes(await retry(log.settings, ALL, dry_run=True)) == [Outcome.PUBLISHED]
    assert set((await copies(log)).values()) == {1}, "a dry run writes nothing"
    assert outcomes(await retry(log.settings, ALL)) == [Outcome.PUBLISHED]
    assert outcomes(await retry(log.settings, ALL)) == [Outcome.THERE], "before the buffer has seen it"
    await drain(log.settings)
    assert outcomes(await retry(log.settings, ALL)) == [Outcome.THERE]
    bad, good = [event for event in await log.read(Topic.ROLLOUTS) if event.headers.member == 1]
    said = Headers.source.name
    assert (good.key, good.value, good.partition) == (bad.key, bad.value, bad.partition)
    assert good.headers.raw == bad.headers.raw | {said: f"/retry/{bad.partition}/{bad.offset}".encode()}
    counts = (await audited(log)).counts
    assert (counts.produced, counts.terms["rejected"], counts.terms["pending"]) == (3, 1, 2)
    assert await train(log) == 1
    (final,) = await log.finals()
    assert [Handle.parse(str(m.handle)).offset for m in final.members] == [0, good.offset]
    await drain(log.settings)
    counts = (await audited(log)).counts
    assert (counts.terms["rejected"], counts.terms["trained"]) == (1, 2)
    assert len(await dead_letters(log.connection)) == 1
    assert outcomes(await retry(log.settings, ALL)) == [Outcome.ENDED]
    await reindex(log.settings, options=OPTIONS)
    await audited(log)


@pytest.mark.broker
async def test_a_record_of_a_dead_letter_is_never_trained_by_a_trainer_that_finds_it_sound(log: Log) -> None:
    """It was mended, and nobody tried it again: its slot stays failed, and the audit green."""
    await log.bring(0)
    mend(await rejected(log, "a"))
    survivors = log.settings.trainer.model_copy(update={"min_survivors": 1})
    log.settings = log.settings.model_copy(update={"trainer": survivors})
    await reindex(log.settings, options=OPTIONS)
    folds = [shard.fold async for shard in shard_views(log.connection, log.settings)]
    (group,) = [opened.group for fold in folds for opened in fold.groups.opened.values()]
    assert [group.status(member) for member in range(2)] == ["completed", "failed"], "by a shard that reads it anew"
    assert await train(log) == 1
    (final,) = await log.finals()
    assert [member.status for member in final.members] == ["completed", "failed"]
    await drain(log.settings)
    await audited(log)


@pytest.mark.broker
async def test_two_at_once_publish_each_record_once(log: Log) -> None:
    await log.bring(0)
    names = [f"g{number}" for number in range(20)]
    mend(await rejected(log, *names))
    both = await asyncio.gather(*(retry(log.settings, ALL) for _ in range(2)), return_exceptions=True)
    assert all(isinstance(found, list | Fenced) for found in both), both
    await retry(log.settings, ALL)
    assert await copies(log) == dict.fromkeys((f"{group_id(name)}.1.1" for name in names), 2)


@pytest.mark.broker
async def test_a_policy_that_was_published_late_lets_its_rollouts_train(log: Log) -> None:
    """The trainer alone had rejected them; the buffer's row of them stands."""
    members = [desk.rollout(member, 99, group=group_id("late"), size=3) for member in range(3)]
    await log.write(*members[:2])
    assert await train(log, step=100) == 0
    await drain(log.settings)
    (first, *_) = found = await retry(log.settings, LetterFilter(reason="policy-unknown"))
    assert outcomes(found) == [Outcome.FAILS] * 2
    assert "0:99 was never published" in first.why
    await log.publish(Policy(0, 99))
    assert outcomes(await retry(log.settings, ALL)) == [Outcome.PUBLISHED] * 2
    await log.write(members[2])
    await drain(log.settings)
    assert await train(log, step=100) == 1
    await drain(log.settings)
    counts = (await audited(log)).counts
    assert (counts.produced, counts.terms["rejected"], counts.terms["trained"]) == (5, 2, 3)


@pytest.mark.broker
async def test_what_cant_be_tried_again_is_told_and_left(log: Log) -> None:
    gone = Event(Topic.ROLLOUTS, 0, 77, NOW, b"k", Headers([]), b"v")
    shape = Rejected(RejectReason.SHAPE, "bad")
    known: dict[str, Any] = {"source": SOURCE, "now": NOW}
    line = rejected_line(shape, b"{", digest="0" * 64, size=1, path="/in/a.jsonl", line=3, byte=0, **known)
    bare = derivation_rejected_event(
        Handle(1, 2), "boom", group="g", rollout="g.0", digest="0" * 64, derivation="d", **known
    )
    seed = replace(gone, topic=Topic.SEEDS)
    await log.write(rejected_event(gone, shape, **known), rejected_event(seed, shape, **known), line, bare)
    nan = annotated("n", reward=0.5)
    await log.write(replace(nan, value=b"[]", headers=[h for h in nan.headers if h[0] != Headers.digest.name]))
    await drain(log.settings)
    found = {one.letter.place: one.outcome for one in await retry(log.settings, ALL)}
    (annotation,) = [place for place in found if place.startswith("rollouts/") and place.endswith("/0")]
    assert found == {
        "rollouts/0/77": Outcome.GONE,
        "seeds/0/77": Outcome.OTHER,
        "/in/a.jsonl:3": Outcome.LINE,
        "rollouts/1/2": Outcome.DERIVATION,
        annotation: Outcome.FAILS,
    }
    assert len(await log.read(Topic.ROLLOUTS)) == 1
    (only,) = await retry(log.settings, LetterFilter(place="rollouts/0/77"))
    assert only.as_json()["why"] == ADVICE[Outcome.GONE]
    assert {one.letter.place for one in await retry(log.settings, LetterFilter(topic=Topic.SEEDS))} == {"seeds/0/77"}


@pytest.mark.broker
def test_the_command_says_what_became_of_each_and_ends_with_1_where_one_fails(
    kafka_broker: EmbeddedKafka, tmp_path: Path
) -> None:
    shell = Shell(kafka_broker, tmp_path, f'blobs = "{tmp_path / "blobs"}"\n' + CONFIG)
    shell.run("topics", "create")
    log = Log(shell.settings)
    asyncio.run(log.bring(0))
    hidden = asyncio.run(rejected(log, "a"))
    (letter,) = shell.lines("dead-letters", "list")
    place = f"rollouts/{letter['partition']}/{letter['offset']}"
    (still,) = shell.lines("dead-letters", "retry", place, code=1)
    assert (still["place"], still["reason"], still["outcome"]) == (place, "claim-missing", "fails")
    mend(hidden)
    assert shell.run("dead-letters", "retry", "--reason", "digest") == ""
    assert "1 published" in shell.run("dead-letters", "retry", "--dry-run")
    assert "1 published" in shell.run("dead-letters", "retry", "--reason", "claim-missing", "--topic", "rollouts")
    (again,) = shell.lines("dead-letters", "retry")
    assert (again["outcome"], again["why"]) == ("there", ADVICE[Outcome.THERE])
    shell.run("buffer", "run", "--drain")
    (audit,) = shell.lines("audit")
    assert (audit["ok"], audit["rejected"], audit["pending"]) == (True, 1, 2)


def sound(member: int = 0, attempt: int = 1, digest: str = "d", size: int = 2) -> SoundNow:
    letter = Letter(EventType.RECORD_REJECTED, "rollouts/0/5", "shape", "", Topic.ROLLOUTS, Handle(0, 5))
    slot = Slot(group="g", group_size=size, member=member, attempt=attempt, origin_seed="s", origin_offset=0)
    return SoundNow(letter, slot, Record.at(Handle(0, 5), attempt, Status.COMPLETED, digest))


@pytest.mark.pure
def test_a_record_counts_only_where_its_group_still_wants_it() -> None:
    now = GroupsNow({}, {"over"}, {("g", 1): 2})
    assert now.offer(sound(0, 2)).outcome is Outcome.PUBLISHED
    assert now.offer(sound(0, 2)).outcome is Outcome.THERE, "a second letter of the same record"
    assert now.offer(sound(0, 1)).outcome is Outcome.SUPERSEDED
    assert now.offer(sound(1, 2)).outcome is Outcome.EXPIRED
    assert now.offer(sound(1, 3)).outcome is Outcome.PUBLISHED
    conflict = now.offer(sound(0, 2, digest="other"))
    assert (conflict.outcome, conflict.why[:8]) == (Outcome.FAILS, "conflict")
    assert now.offer(sound(0, 4, size=3)).why.startswith("group-size")
    ended = GroupsNow({"g": Group("g")}, {"g"}, {})
    assert ended.offer(sound()).outcome is Outcome.ENDED
    assert ADVICE.keys() == set(Outcome)
