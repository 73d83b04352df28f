"""Rollouts off the log and back into files, and those files onto a log again."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest

from rolloutlog.consumers.exporting.export_service import Exported, Format, export_rollouts
from rolloutlog.consumers.replaying.horizons import Until
from rolloutlog.contract.errors import RunMismatch, SettingsError
from rolloutlog.contract.events.validation import read_headers, read_rollout
from rolloutlog.contract.record.provenance import STATUS_OF
from rolloutlog.contract.record.rollout import Rollout
from rolloutlog.contract.settings import Settings
from rolloutlog.contract.topics import Topic
from rolloutlog.kafka.client.connection import connect
from rolloutlog.kafka.read.ends import ends
from rolloutlog.kafka.read.reading import read_to_end
from rolloutlog.producers.importing.demo_records import demo_run
from rolloutlog.producers.producer import RolloutProducer
from tests.cases.rollouts import sound

pytestmark = pytest.mark.broker

Fill = Callable[..., Settings]
STEP = "rollouts/step_3/train"


def export(settings: Settings, folder: Path, layout: Format) -> Exported:
    return asyncio.run(export_rollouts(settings, folder, layout))


def on_the_log(settings: Settings) -> dict[str, Rollout]:
    """Every rollout by its id in its own run."""

    async def body() -> dict[str, Rollout]:
        connection, found = await connect(settings), dict[str, Rollout]()
        for number in range(settings.topics.partitions):
            async for events in read_to_end(connection, Topic.ROLLOUTS, number):
                for event in events:
                    if read_headers(event, settings.topics.partitions) in STATUS_OF:
                        found[event.headers.trace or event.headers.rollout or ""] = read_rollout(event)
        return found

    return asyncio.run(body())


def lines(path: Path) -> list[bytes]:
    return sorted(path.read_bytes().splitlines())


def test_episodes_come_out_as_they_went_in(filled: Fill, tmp_path: Path) -> None:
    """Era E4, byte for byte, both cohorts."""
    exported = export(filled(demo_run()), tmp_path / "out", "jsonl")
    assert (exported.rollouts, exported.trained, exported.files) == (16, 12, 2)
    for cohort in ("all", "effective"):
        name = f"{STEP}/{cohort}/traces.jsonl"
        assert lines(tmp_path / "out" / name) == lines(demo_run() / name), cohort


def test_out_and_in_again_is_the_same_log(filled: Fill, samples: Path, tmp_path: Path) -> None:
    """What was exported as episodes is imported as equal records, of every era."""
    first = filled(demo_run(), samples / "sept2026")
    export(first, tmp_path / "out", "jsonl")
    assert on_the_log(filled(tmp_path / "out")) == on_the_log(first)


def test_groups_that_only_the_configuration_says_are_found_again(filled: Fill, tmp_path: Path) -> None:
    """Episodes without a group, of which a file beside them says how many belong together."""
    episodes = [orjson.loads(line) for line in (demo_run() / f"{STEP}/all/traces.jsonl").read_bytes().splitlines()[:8]]
    source = tmp_path / "in"
    source.mkdir()
    (source / "traces.jsonl").write_bytes(b"".join(orjson.dumps({**one, "group": None}) + b"\n" for one in episodes))
    (source / "metadata.json").write_bytes(b'{"rollouts_per_example": 4}')
    first = filled(source)
    export(first, tmp_path / "out", "jsonl")
    again = filled(tmp_path / "out")
    assert Counter(rollout.slot.group_size for rollout in on_the_log(first).values()) == {4: 8}
    assert on_the_log(again) == on_the_log(first)


@pytest.mark.parametrize("era", ["july2026", "e3", "v0"])
def test_earlier_eras_become_episodes(era: str, filled: Fill, samples: Path, tmp_path: Path) -> None:
    """Tokens, messages and rewards are the same; nothing is lost on the way."""
    first = filled(samples / era)
    export(first, tmp_path / "out", "jsonl")
    before, after = on_the_log(first), on_the_log(filled(tmp_path / "out"))
    assert before.keys() == after.keys()
    for name, rollout in before.items():
        one, two = rollout.trajectory, after[name].trajectory
        assert np.array_equal(one.token_ids, two.token_ids)
        assert np.array_equal(one.logprobs, two.logprobs)
        assert np.array_equal(one.nodes[:, :3], two.nodes[:, :3])
        assert np.array_equal(one.segments, two.segments)
        assert one.messages == two.messages
        assert one.reward == two.reward
        assert rollout.status == after[name].status


def test_july_records_come_out_as_they_went_in(filled: Fill, samples: Path, tmp_path: Path) -> None:
    """The record file, byte for byte but for log-probs that float32 doesn't hold (those lines have their value in a
    stamp besides), and an index with exact spans."""
    source = samples / "july2026/run/rollouts/step_1"
    export(filled(source / "train_rollouts.jsonl"), tmp_path / "out", "records")
    folder = tmp_path / "out/rollouts/step_1"
    assert sorted(path.name for path in folder.iterdir()) == [
        "index_echo-recheck.jsonl",
        "index_echo.jsonl",
        "train_rollouts_echo-recheck.jsonl",
        "train_rollouts_echo.jsonl",
    ]
    written = [line for path in folder.glob("train_*") for line in path.read_bytes().splitlines()]
    original = {orjson.loads(line)["id"]: line for line in (source / "train_rollouts.jsonl").read_bytes().splitlines()}
    assert len(written) == 11
    for line in written:
        before = original[orjson.loads(line)["id"]]
        assert _unstamped(_rounded(orjson.loads(line))) == _rounded(orjson.loads(before))
        assert (line == before) is _fits_float32(orjson.loads(before))
    for index in folder.glob("index_*"):
        records = (folder / index.name.replace("index_", "train_rollouts_")).read_bytes()
        for row in map(orjson.loads, index.read_bytes().splitlines()):
            span = orjson.loads(records[row["offset"] : row["offset"] + row["len"]])
            assert span["id"] == row["trace"]
            assert row["reward"] == sum(span["rewards"].values())


def _fits_float32(line: dict[str, Any]) -> bool:
    """True if float32 holds every log-prob, so that its shortest text is the one that was written."""
    said = [value for node in line["nodes"] for value in node["logprobs"]]
    return orjson.loads(orjson.dumps(np.array(said, np.float32), option=orjson.OPT_SERIALIZE_NUMPY)) == said


def _unstamped(line: dict[str, Any]) -> dict[str, Any]:
    line["info"].pop("rolloutlog", None)
    return line


def _rounded(line: dict[str, Any]) -> dict[str, Any]:
    for node in line["nodes"]:
        node["logprobs"] = [round(value, 6) for value in node["logprobs"]]
    return line


def test_episodes_become_july_records(filled: Fill, tmp_path: Path) -> None:
    """The other way round: flat task, weighted rewards; its own index rows are true when imported."""
    export(filled(demo_run()), tmp_path / "out", "records")
    record = orjson.loads((tmp_path / "out/rollouts/step_3/train_rollouts_arith.jsonl").read_bytes().splitlines()[0])
    assert set(record) == {
        "id",
        "task",
        "nodes",
        "rewards",
        "metrics",
        "info",
        "extra_usage",
        "is_completed",
        "stop_condition",
        "errors",
        "timing",
    }
    assert record["task"]["prompt"].startswith("Compute")
    assert sum(record["rewards"].values()) in (pytest.approx(0.1), pytest.approx(1.1))
    assert record["info"]["prime_rl"]["policy_version"] == 1
    again = on_the_log(filled(tmp_path / "out"))
    assert len(again) == 16
    assert {rollout.slot.group_size for rollout in again.values()} == {4}


def test_parquet(filled: Fill, tmp_path: Path) -> None:
    """One row a rollout, list columns for tokens; pandas reads it."""
    parquet = pytest.importorskip("pyarrow.parquet")
    settings = filled(demo_run())
    assert export(settings, tmp_path / "out", "parquet").rollouts == 16
    table = parquet.read_table(tmp_path / "out/rollouts.parquet")
    assert table.num_rows == 16
    rollouts = on_the_log(settings)
    for row in table.to_pylist():
        rollout = rollouts[row["trace"]]
        assert row["token_ids"] == rollout.trajectory.token_ids.tolist()
        assert np.array_equal(np.array(row["logprobs"], np.float32), rollout.trajectory.logprobs)
        assert sum(row["node_tokens"]) == len(row["token_ids"])
        assert orjson.loads(row["messages"]) == rollout.trajectory.messages
        assert (row["oldest_timeline"], row["oldest_version"]) == (0, 1)
    assert Counter(table.column("trained").to_pylist()) == {True: 12, False: 4}


def test_what_a_worker_published_can_be_exported(filled: Fill, tmp_path: Path) -> None:
    """A rollout of our own becomes an episode: no run of verifiers, no task, nodes without their own run."""
    settings = filled()

    async def publish() -> None:
        async with RolloutProducer(settings) as producer:
            for member in range(2):
                await producer.publish(sound("a" * 32, member))

    asyncio.run(publish())
    export(settings, tmp_path / "out", "jsonl")
    found = [orjson.loads(line) for line in lines(tmp_path / "out/rollouts/step_0/train/all/traces.jsonl")]
    assert [len(episode["traces"][0]["nodes"]) for episode in found] == [2, 2]
    assert found[0]["run"]["work"]["policy"] == {"start": 0, "end": 1}


def test_a_folder_that_is_there_is_refused(filled: Fill, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="is there already"):
        export(filled(), tmp_path, "jsonl")


def test_nothing_is_left_of_what_failed(settings_without_run: Settings, tmp_path: Path) -> None:
    """A namespace where no run is declared; the folder doesn't appear."""
    with pytest.raises(RunMismatch):
        export(settings_without_run, tmp_path / "out", "jsonl")
    assert not (tmp_path / "out").exists()


@pytest.fixture
def settings_without_run(kafka_broker: Any) -> Settings:
    settings = Settings.model_validate(
        {"namespace": "export-nothing", "bootstrap_servers": kafka_broker.bootstrap_servers}
    )

    async def body() -> None:
        from rolloutlog.kafka.client.admin import create_topics

        await create_topics(await connect(settings), settings)

    asyncio.run(body())
    return settings


def test_an_export_can_be_cut_and_is_then_what_stood_below(filled: Fill, tmp_path: Path) -> None:
    """At the log's end it is what stands now; below, no later record, note or end counts."""
    settings = filled(demo_run())

    def cut(name: str, offsets: list[int]) -> Exported:
        until = Until(offsets=dict(enumerate(offsets)))
        return asyncio.run(export_rollouts(settings, tmp_path / name, "records", until))

    async def stable() -> list[int]:
        found = await ends(await connect(settings), [Topic.ROLLOUTS])
        return [found[Topic.ROLLOUTS, number].stable for number in range(3)]

    last = asyncio.run(stable())
    now = export(settings, tmp_path / "now", "records")
    assert cut("last", last).rollouts == now.rollouts > 0
    files = {path.relative_to(tmp_path / "now"): path.read_bytes() for path in (tmp_path / "now").rglob("*.jsonl")}
    assert files == {
        path.relative_to(tmp_path / "last"): path.read_bytes() for path in (tmp_path / "last").rglob("*.jsonl")
    }
    one_each = [cut(f"part{number}", [last[n] if n == number else 0 for n in range(3)]).rollouts for number in range(3)]
    assert sum(one_each) == now.rollouts
    assert cut("none", [0, 0, 0]).rollouts == 0
