"""A line of a layout that says more or less than the layout's writers do comes back as the same value
(design/eras#export)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest

from rolloutlog.contract.events.event import Event
from rolloutlog.contract.events.validation import read_rollout
from rolloutlog.contract.record import value
from rolloutlog.contract.record.provenance import STATUS_OF
from rolloutlog.contract.topics import Topic
from rolloutlog.contract.wire.headers import Headers
from rolloutlog.formats.writers.episode_lines import episode_of
from rolloutlog.formats.writers.july_records import record_of
from rolloutlog.formats.writers.standing import StandingRollout
from rolloutlog.producers.importing.demo_records import demo_run
from tests.importing.paper_log import PaperLog
from tests.importing.reading import read_raw

SAMPLES = Path(__file__).parent.parent / "data" / "importing"
Line = dict[str, Any]


def without_stamp(line: Line) -> None:
    del line["info"]["prime_rl"]  # all of era E1


def without_errors(line: Line) -> None:
    del line["errors"]


def with_more(line: Line) -> None:
    line["more"] = {"a": [1, None]}


def with_more_in_a_node(line: Line) -> None:
    line["nodes"][0]["more"] = 1.5


def with_another_timing(line: Line) -> None:
    line["timing"] = {"total": 3}


def without_a_task(line: Line) -> None:
    del line["traces"][0]["task"]


def without_a_message(line: Line) -> None:
    line["traces"][0]["nodes"][0]["message"] = None


JULY = (without_stamp, without_errors, with_more, with_more_in_a_node, with_another_timing)
EPISODES = (with_more, without_a_task, without_a_message)


def standing(line: Line, folder: Path) -> StandingRollout:
    """A line as it stands on a log that imported it."""
    file = folder / "rollouts/step_3/train/all/traces.jsonl"
    file.parent.mkdir(parents=True)
    file.write_bytes(orjson.dumps(line) + b"\n")
    log = PaperLog()
    assert log.add(folder).imported == 1
    (event,) = (e for e in log.events.values() if Headers(e.headers).type in STATUS_OF)
    read = Event(Topic.ROLLOUTS, 0, 0, 0, event.key, Headers(event.headers), event.value)
    return StandingRollout(read, read_rollout(read), {}, is_ordered=True)


@pytest.mark.parametrize("change", JULY)
def test_july(change: Callable[[Line], None], tmp_path: Path) -> None:
    line = orjson.loads((SAMPLES / "july2026/run/rollouts/step_1/train_rollouts.jsonl").read_bytes().splitlines()[0])
    change(line)
    there = standing(line, tmp_path)
    assert value.encode(read_raw(record_of(there)).trajectory) == there.event.value


@pytest.mark.parametrize("trained", [False, True])
@pytest.mark.parametrize("change", EPISODES)
def test_episodes(change: Callable[[Line], None], trained: bool, tmp_path: Path) -> None:
    line = orjson.loads((demo_run() / "rollouts/step_3/train/all/traces.jsonl").read_bytes().splitlines()[0])
    change(line)
    there = standing(line, tmp_path)
    assert value.encode(read_raw(episode_of(there, trained=trained)).trajectory) == there.event.value
