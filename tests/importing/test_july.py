"""Eras E1 and E1b: a bare trace a line (design/eras#july; recorded with the replay branch's classes)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest

from rolloutlog.contract.record.trajectory import SAMPLED
from rolloutlog.contract.vocabulary import RunKind, SeedKind, Status
from rolloutlog.formats.foreign.era import Beside, Era
from rolloutlog.formats.foreign.glance import VersionSpan
from rolloutlog.formats.foreign.recorded import Lineage
from rolloutlog.producers.importing.files.found_files import origin_of
from tests.importing.reading import form_of, read_line, whose


@pytest.fixture
def step(samples: Path) -> Path:
    return samples / "july2026" / "run" / "rollouts" / "step_1"


def by_id(path: Path) -> dict[str, dict[str, Any]]:
    return {line["id"][:2]: line for line in map(orjson.loads, path.read_bytes().splitlines())}


def test_golden_facts_of_every_record(step: Path) -> None:
    """Nodes, tokens, sampled tokens, reward and status of all eleven."""
    path = step / "train_rollouts.jsonl"
    found = {
        name: (
            len(r.trajectory.nodes),
            len(r.trajectory.token_ids),
            r.trajectory.response_tokens,
            r.trajectory.reward,
            r.status.value,
            len(r.trajectory.branches),
        )
        for name, r in ((name, read_line(line)) for name, line in by_id(path).items())
    }
    assert found == {
        "00": (3, 58, 3, 1.0, "completed", 1),
        "01": (3, 58, 3, 0.0, "completed", 1),
        "02": (9, 206, 67, 0.0, "completed", 1),
        "03": (10, 283, 66, 1.0, "completed", 2),
        "04": (5, 124, 22, 0.0, "completed", 2),
        "06": (7, 131, 27, 0.0, "completed", 2),
        "08": (5, 109, 30, 0.0, "completed", 1),
        "10": (6, 137, 36, 1.0, "completed", 1),
        "11": (3, 60, 5, 0.0, "failed", 1),
        "12": (0, 0, 0, 0.0, "failed", 0),
        "13": (5, 82, 3, 1.0, "completed", 1),
    }


def test_the_stamp(step: Path) -> None:
    """Env, group, kind and policy of E1b stand in `info.prime_rl`; the step is the folder's (design/eras#july)."""
    path = step / "train_rollouts.jsonl"
    line = by_id(path)["00"]
    raw = orjson.dumps(line)
    assert form_of(raw) is Era.E1B
    found = whose(raw, origin_of(path))
    assert (found.group, found.kind, found.run) == ("00000000-0000-0000-0000-000000000000", RunKind.TRAIN, None)
    one = read_line(line, origin_of(path))
    assert (one.env, one.policy, one.step, one.filtered) == ("echo", VersionSpan(0, 0), 1, False)
    assert one.trajectory.segments.tolist() == [[0, 0, 0]]
    assert one.trajectory.record["info"]["prime_rl"]["policy_version"] == 0
    assert "logprob_precision" not in one.trajectory.record


def test_full_precision_is_kept(step: Path) -> None:
    """Log-probs as float32 of what was written; July didn't round."""
    one = read_line(by_id(step / "train_rollouts.jsonl")["00"])
    assert one.trajectory.logprobs.tolist() == pytest.approx([0.0, -0.1, -0.2])
    assert one.trajectory.nodes[:, SAMPLED].tolist() == [0, 0, 3]


def test_without_a_stamp_the_file_name_speaks(step: Path) -> None:
    """E1: kind and environment of an eval file; no group, no policy: nothing is invented."""
    line = by_id(step / "train_rollouts.jsonl")["00"]
    del line["info"]["prime_rl"]
    raw = orjson.dumps(line)
    assert form_of(raw) is Era.E1
    origin = origin_of(step / "eval_rollouts_gsm8k.jsonl")
    found = whose(raw, origin)
    assert (found.group, found.kind) == (None, RunKind.EVAL)
    one = read_line(line, origin)
    assert (one.env, one.policy, one.trajectory.record["grain"]) == ("gsm8k", None, "none")
    assert not len(one.trajectory.segments)


def test_a_derived_record_of_the_record_design(step: Path) -> None:
    """The name `recheck:<8 hex digits>`, and it starts from an answer that it didn't sample (decisions/replay#24)."""
    line = by_id(step / "train_rollouts.jsonl")["13"]
    assert read_line(line).lineage == Lineage("recheck", SeedKind.RECHECK, "deadbeef")


@pytest.mark.parametrize("name", ["continue: the story", "recheck:me", "continue:03ababab", "recheck:DEADBEEF", None])
def test_a_task_that_is_only_called_so_is_not_derived(step: Path, name: str | None) -> None:
    """A user's own task named `continue: ...` isn't excluded (decisions/replay#24)."""
    line = by_id(step / "train_rollouts.jsonl")["13"]
    line["task"]["name"] = name
    assert read_line(line).lineage is None


def test_a_recheck_that_starts_from_no_answer_is_not_derived(step: Path) -> None:
    line = by_id(step / "train_rollouts.jsonl")["00"]
    line["task"]["name"] = "recheck:deadbeef"
    assert read_line(line).lineage is None


def test_names_of_continued_tasks(step: Path) -> None:
    """The names that replay gave to derived tasks (decisions/replay#60 and #67)."""
    line = by_id(step / "train_rollouts.jsonl")["02"]
    for name in ("continue:03ababab:compaction0", "continue:03ababab:tool-call3", "continue:03ababab:tool-call3-1"):
        line["task"]["name"] = name
        assert read_line(orjson.loads(orjson.dumps(line))).lineage == Lineage("continue", SeedKind.CONTINUE, "03ababab")


def test_a_derived_record_of_the_buffer_design(step: Path) -> None:
    """`source_task` and `source_id`; chained ones are unwrapped to the innermost task (decisions/replay#23 and #85)."""
    line = by_id(step / "train_rollouts.jsonl")["00"]
    innermost = {"idx": 7, "prompt": "original", "image": "python:3.11", "answer": "hi"}
    line["task"] |= {
        "kind": "replay_recheck",
        "source_id": "01abab",
        "original_reward": 0.0,
        "source_step": 4,
        "source_task": {"kind": "replay_continue", "source_id": "02abab", "source_task": innermost},
    }
    one = read_line(line)
    assert one.lineage == Lineage("replay_recheck", SeedKind.RECHECK, "01abab", depth=2)
    assert one.trajectory.record["task"] == innermost
    record = one.trajectory.record
    assert record["replay_task"]["original_reward"] == 0.0
    assert (record["source_reward"], record["source_step"]) == (0.0, 4)


@pytest.mark.parametrize("said", ["much", True, -1, 2**63, [], {}])
def test_what_is_neither_a_reward_nor_a_step_is_not_taken_for_it(step: Path, said: Any) -> None:
    line = by_id(step / "train_rollouts.jsonl")["00"]
    line["task"] |= {"source_id": "01", "source_step": said, "source_task": {}, "original_reward": str(said)}
    record = read_line(line).trajectory.record
    assert (record["source_reward"], record["source_step"]) == (None, None)


def test_an_unrelated_kind_does_not_make_it_derived(step: Path) -> None:
    """The mark is structural (decisions/replay#23)."""
    line = by_id(step / "train_rollouts.jsonl")["00"]
    line["task"]["kind"] = "puzzle"
    assert read_line(line).lineage is None


def test_index_rows_are_known(step: Path) -> None:
    """`offset` and `len` make an index row, not a record (design/eras#telling-apart)."""
    for raw in (step / "index_echo.jsonl").read_bytes().splitlines():
        assert form_of(raw) is Beside.SPAN


def test_errored_records_failed(step: Path) -> None:
    """An errored and a synthesized cancelled record have no result (decisions/replay#21 and #22)."""
    lines = by_id(step / "train_rollouts.jsonl")
    assert read_line(lines["11"]).status is Status.FAILED
    assert read_line(lines["12"]).status is Status.FAILED
