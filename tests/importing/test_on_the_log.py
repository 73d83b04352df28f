"""What an import writes, read back from a real broker as every service reads it."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest

from rolloutlog.contract.errors import RunMismatch
from rolloutlog.contract.events.event import Event
from rolloutlog.contract.events.policy_versions import fold, timeline_started
from rolloutlog.contract.events.rollouts import read_annotation, read_cancelled
from rolloutlog.contract.events.validation import read_headers, read_rollout
from rolloutlog.contract.ids import imported_group_id
from rolloutlog.contract.policies import History, Policy
from rolloutlog.contract.record.provenance import STATUS_OF
from rolloutlog.contract.record.rollout import Rollout
from rolloutlog.contract.settings import Settings
from rolloutlog.contract.topics import TOPICS, Topic
from rolloutlog.contract.vocabulary import EventType, RunKind, SeedKind, Status
from rolloutlog.kafka.client.admin import create_topics
from rolloutlog.kafka.client.connection import connect
from rolloutlog.kafka.read.reading import read_to_end
from rolloutlog.kafka.run_record import declare
from rolloutlog.kafka.write.writing import Writer
from rolloutlog.producers.importing.demo_records import demo_run
from rolloutlog.producers.importing.import_service import import_runs
from rolloutlog.producers.importing.report import Report

pytestmark = pytest.mark.broker

Write = Callable[..., Path]


def imported(settings: Settings, *paths: Path, **options: Any) -> Report:
    async def body() -> Report:
        connection = await connect(settings)
        await create_topics(connection, settings)
        await declare(connection, settings)
        return await import_runs(settings, paths, **options)

    return asyncio.run(body())


def events(settings: Settings, topic: Topic = Topic.ROLLOUTS) -> list[Event]:
    async def body() -> list[Event]:
        connection = await connect(settings)
        partitions = TOPICS[topic].partitions or settings.topics.partitions
        return [
            event
            for number in range(partitions)
            async for batch in read_to_end(connection, topic, number)
            for event in batch
        ]

    return asyncio.run(body())


def rollouts(settings: Settings) -> list[Rollout]:
    """Every record, through the validator that all readers share."""
    partitions = settings.topics.partitions
    return [read_rollout(event) for event in events(settings) if read_headers(event, partitions) in STATUS_OF]


def of_type(settings: Settings, kind: EventType) -> list[Event]:
    return [event for event in events(settings) if event.headers.type == kind]


def test_the_recorded_runs(settings: Settings, samples: Path) -> None:
    """Golden: groups, members, rewards, policies and notes of the August run, singles' worth of groups of July."""
    report = imported(settings, demo_run(), samples / "july2026")
    assert (report.imported, report.groups, report.policies, report.cancelled) == (27, 15, 3, 0)
    found = rollouts(settings)
    assert len(found) == 27
    august = [rollout for rollout in found if rollout.slot.run == "run-demo"]
    groups = {imported_group_id("run-demo", f"00000000-0000-0000-0000-{number:012}"): number for number in range(1, 5)}
    rewards = {
        number: [
            round(rollout.trajectory.reward or 0.0, 3)
            for rollout in sorted(august, key=lambda rollout: rollout.slot.member)
            if rollout.slot.group == group
        ]
        for group, number in groups.items()
    }
    assert rewards == {
        1: [1.1, 1.1, 1.1, 1.1],
        2: [0.1, 0.1, 1.1, 1.1],
        3: [1.1, 1.1, 0.1, 1.1],
        4: [0.1, 1.1, 1.1, 1.1],
    }
    for rollout in august:
        slot = rollout.slot
        assert (slot.group_size, slot.attempt, slot.kind) == (4, 1, RunKind.TRAIN)
        assert slot.env == ("arith" if groups[slot.group] < 3 else "arith-longctx")
        assert (slot.dispatch_step, slot.origin_seed, slot.depth) == (2, None, 0)
        assert rollout.trajectory.policy_span == (Policy(0, 1), Policy(0, 1))
        assert rollout.status is Status.COMPLETED
    assert sum(rollout.trajectory.response_tokens for rollout in august) == 1_546
    july = [rollout for rollout in found if rollout.slot.run is None]
    assert Counter(rollout.status.value for rollout in july) == {"completed": 9, "failed": 2}
    assert {rollout.slot.group_size for rollout in july} == {1}
    derived = [rollout.slot for rollout in july if rollout.slot.derivation]
    assert [(slot.derivation, slot.seed_kind, slot.depth, slot.env) for slot in derived] == [
        ("recheck", SeedKind.RECHECK, 1, "echo-recheck")
    ]


def test_headers_say_where_it_comes_from(settings: Settings) -> None:
    """Trace id, digest of the line, step folder and grain, without parsing the value."""
    imported(settings, demo_run())
    first = orjson.loads((demo_run() / "rollouts/step_3/train/all/traces.jsonl").read_bytes().split(b"\n", 1)[0])
    event = next(e for e in events(settings) if e.headers.trace == first["traces"][0]["id"])
    headers = event.headers
    assert headers.source == "/importers/E4"
    assert headers.grain == "episode"
    assert headers.step == 3
    assert len(headers.raw_digest or "") == 64
    assert (headers.tokens, headers.turns, headers.branches) == (552, 2, 1)


def test_copies_become_annotations(settings: Settings) -> None:
    """The `effective` cohort: the advantage, and that it was trained (design/eras#cohorts)."""
    imported(settings, demo_run())
    notes = [read_annotation(event) for event in of_type(settings, EventType.ROLLOUT_ANNOTATED)]
    assert len(notes) == 12
    assert {(note["trained"], note["step"]) for note in notes} == {(True, 3)}
    assert sorted(round(note["advantage"], 2) for note in notes) == [-0.75] * 2 + [-0.5] * 2 + [0.25] * 6 + [0.5] * 2


def test_policies_are_imported_first_and_never_current(settings: Settings) -> None:
    """Start and end of what was found, as timeline 0 (design/eras#policies)."""
    imported(settings, demo_run())
    history = History()
    for event in events(settings, Topic.POLICY_VERSIONS):
        fold(history, event)
    assert history.imported == {Policy(0, 1), Policy(0, 2)}
    assert not history.started


def test_importing_again_writes_nothing(settings: Settings, samples: Path) -> None:
    """The same bytes, in another order and under another path's name too."""
    imported(settings, demo_run(), samples / "july2026")
    before = [(event.partition, event.offset, event.headers.id) for event in events(settings)]
    policies = len(events(settings, Topic.POLICY_VERSIONS))
    report = imported(settings, samples / "july2026", demo_run() / "rollouts" / "step_3" / "train" / "effective")
    assert report.imported == 0
    report = imported(settings, samples / "july2026", demo_run())
    assert (report.imported, report.duplicates, report.policies) == (0, 50, 0)
    assert [(event.partition, event.offset, event.headers.id) for event in events(settings)] == before
    assert len(events(settings, Topic.POLICY_VERSIONS)) == policies


def test_a_rewritten_file_supersedes_by_attempt(settings: Settings, lines_file: Write) -> None:
    """A changed record takes the next attempt, known from the headers on the log; the others stay."""
    lines = (demo_run() / "rollouts/step_3/train/all/traces.jsonl").read_bytes().splitlines()[:4]
    imported(settings, lines_file("traces.jsonl", *lines))
    changed = orjson.loads(lines[1])
    changed["traces"][0]["rewards"]["correct"]["score"] = 0.0
    for attempt in (2, 3):
        changed["traces"][0]["metrics"]["edited"] = attempt
        report = imported(settings, lines_file("traces.jsonl", lines[0], orjson.dumps(changed), *lines[2:]))
        assert (report.imported, report.eras["E4"].changed, report.eras["E4"].duplicates) == (1, 1, 3)
        newest = max(rollouts(settings), key=lambda rollout: rollout.slot.attempt)
        assert (newest.slot.member, newest.slot.attempt) == (1, attempt)
        assert newest.trajectory.reward == pytest.approx(0.1)


def test_members_that_lack_are_cancelled(settings: Settings, lines_file: Write) -> None:
    """At the source's end: a rejected member of a group, and what `--group-size` says is missing."""
    lines = (demo_run() / "rollouts/step_3/train/all/traces.jsonl").read_bytes().splitlines()[:4]
    broken = orjson.loads(lines[2])
    broken["traces"][0]["nodes"][2]["mask"] = []
    file = lines_file("traces.jsonl", *lines[:2], orjson.dumps(broken), lines[3])
    report = imported(settings, file, group_size=6)
    assert (report.imported, report.rejected, report.cancelled) == (3, 1, 3)
    (cancelled,) = of_type(settings, EventType.GROUP_CANCELLED)
    assert read_cancelled(cancelled).members == (2, 4, 5)
    assert cancelled.headers.group_size == 6
    assert {rollout.slot.member for rollout in rollouts(settings)} == {0, 1, 3}
    assert imported(settings, file, group_size=6).cancelled == 0


def test_late_scores(settings: Settings, lines_file: Write) -> None:
    """A copy that was written before it was scored is completed, and the score an annotation; one that nobody ever
    scored has no result: failed, so that its group ends."""
    lines = (demo_run() / "rollouts/step_3/train/all/traces.jsonl").read_bytes().splitlines()[:2]
    unscored = [orjson.loads(line) for line in lines]
    for line in unscored:
        line["traces"][0]["rewards"] = {"correct": None}
    file = lines_file("traces.jsonl", *map(orjson.dumps, unscored), lines[0])
    for _ in range(2):
        imported(settings, file)
        found = {rollout.slot.member: rollout for rollout in rollouts(settings)}
        assert {member: rollout.status for member, rollout in found.items()} == {
            0: Status.COMPLETED,
            1: Status.FAILED,
        }
        assert found[0].trajectory.reward is None
        (note,) = [read_annotation(event) for event in of_type(settings, EventType.ROLLOUT_ANNOTATED)]
        assert note == {"reward": pytest.approx(1.1)}


def test_bad_lines_are_dead_letters(settings: Settings, lines_file: Write) -> None:
    """Each with reason, path, line and the raw line where it is small; eval and the rest are imported."""
    good = (demo_run() / "rollouts/step_3/train/all/traces.jsonl").read_bytes().splitlines()[0]
    file = lines_file("traces.jsonl", b'{"half": ', good, b"\xff" * 20_000)
    report = imported(settings, file)
    assert (report.imported, report.rejected) == (1, 2)
    letters = [orjson.loads(event.value or b"") for event in events(settings, Topic.DEAD_LETTERS)]
    assert [(letter["reason"], letter["line"], letter["byte"], letter["raw"]) for letter in letters] == [
        ("not-json", 1, 0, '{"half": '),
        ("not-json", 3, 11 + len(good), None),
    ]
    assert letters[0]["path"] == str(file)
    assert letters[1]["size"] == 20_000
    ids = [event.headers.id for event in events(settings, Topic.DEAD_LETTERS)]
    imported(settings, file)
    assert set(ids) == {event.headers.id for event in events(settings, Topic.DEAD_LETTERS)}


def test_a_conflict_stays_one_however_often_it_is_imported(settings: Settings, lines_file: Write) -> None:
    """The first copy of an id in the files stands, each time; its rival has one dead letter, and is told every time."""
    first, *others = (demo_run() / "rollouts/step_3/train/all/traces.jsonl").read_bytes().splitlines()[:4]
    rival = orjson.loads(first)
    rival["traces"][0]["nodes"][-1]["message"]["content"] = "another answer"
    path = lines_file("traces.jsonl", first, *others, orjson.dumps(rival))
    for imports, changed in ((4, 0), (0, 0), (0, 0)):
        report = imported(settings, path)
        assert (report.imported, report.eras["E4"].changed, report.rejected) == (imports, changed, 1)
    assert Counter(event.headers.attempt for event in events(settings)) == {1: 4}
    assert len(events(settings, Topic.DEAD_LETTERS)) == 1


def test_a_line_that_no_header_can_hold_leaves_no_member_open(settings: Settings, lines_file: Write) -> None:
    """It is counted as rejected alone, and its member is cancelled with what else its group lacks."""
    lines = (demo_run() / "rollouts/step_3/train/all/traces.jsonl").read_bytes().splitlines()[:4]
    bad = orjson.loads(lines[1])
    bad["run"]["work"]["step"] = -1
    path = lines_file("traces.jsonl", lines[0], orjson.dumps(bad), *lines[2:])
    report = imported(settings, path)
    assert (report.imported, report.rejected, report.cancelled) == (3, 1, 1)
    (gone,) = of_type(settings, EventType.GROUP_CANCELLED)
    assert read_cancelled(gone).members == (1,)
    again = imported(settings, path)
    assert (again.imported, again.rejected, again.cancelled) == (0, 1, 0)
    assert len(events(settings, Topic.DEAD_LETTERS)) == 1


def test_an_eval_run(settings: Settings, lines_file: Write) -> None:
    """`vf-eval` writes no group and no policy: complete singles of kind eval, grain none."""
    line = orjson.loads((demo_run() / "rollouts/step_3/train/all/traces.jsonl").read_bytes().splitlines()[0])
    del line["group"]
    line["run"] = {"type": "eval", "id": "e1", "name": "x"}
    report = imported(settings, lines_file("traces.jsonl", orjson.dumps(line)))
    assert (report.singles, report.policies) == (1, 0)
    (rollout,) = rollouts(settings)
    assert (rollout.slot.kind, rollout.slot.group_size, rollout.slot.run) == (RunKind.EVAL, 1, "e1")
    assert events(settings)[0].headers.grain == "none"


def test_a_namespace_with_a_trainer_is_refused(settings: Settings) -> None:
    """Recorded policies are timeline 0 and would mix with the trainer's own (design/eras#policies)."""

    async def start() -> None:
        connection = await connect(settings)
        await create_topics(connection, settings)
        async with Writer(connection) as writer:
            now = int(time.time() * 1000)
            await writer.send(timeline_started(0, None, 0, run=settings.run_id, source="/trainer", now=now))

    asyncio.run(start())
    with pytest.raises(RunMismatch, match="a trainer has started"):
        imported(settings, demo_run())
    assert events(settings) == []


def test_a_line_of_100_megabytes(settings: Settings, lines_file: Write, tmp_path: Path) -> None:
    """It is read in one piece, and its body goes to the store."""
    line = orjson.loads((demo_run() / "rollouts/step_3/train/all/traces.jsonl").read_bytes().splitlines()[0])
    line["traces"][0]["nodes"][3]["message"]["content"] = "x" * 100_000_000
    stored = settings.model_copy(update={"blobs": str(tmp_path / "blobs")})
    assert imported(stored, lines_file("traces.jsonl", orjson.dumps(line))).imported == 1
    (event,) = events(settings)
    assert event.headers.tokens == 552
    (blob,) = [path for path in (tmp_path / "blobs").rglob("*") if path.is_file()]
    assert blob.stat().st_size > 100_000_000


def test_a_line_above_the_limit_goes_through_the_claim_check(
    settings: Settings, lines_file: Write, tmp_path: Path
) -> None:
    """Without a store its line is rejected, as the dry run says, and the rest imported; with one the event carries the
    claim."""
    good = (demo_run() / "rollouts/step_3/train/all/traces.jsonl").read_bytes().splitlines()[1]
    line = orjson.loads((demo_run() / "rollouts/step_3/train/all/traces.jsonl").read_bytes().splitlines()[0])
    line["traces"][0]["info"]["long"] = "x" * (9 << 20)
    file = lines_file("traces.jsonl", orjson.dumps(line), good)
    for dry_run in (True, False):
        report = imported(settings, file, dry_run=dry_run)
        assert (report.imported, report.rejected) == (1, 1)
        assert report.eras["E4"].rejected["too-large"].first == f"{file}:1"
    stored = settings.model_copy(update={"blobs": str(tmp_path / "blobs")})
    assert imported(stored, file).imported == 1
    (event,) = [event for event in events(settings) if event.headers.attempt == 1 and event.headers.member == 0]
    assert event.headers.content_type == "application/vnd.rolloutlog.claim+json"
    assert len(list((tmp_path / "blobs").rglob("*"))) == 2
