"""Eras E2 and E3: bare traces with cohorts (design/eras#cohorts). E2 and the 0.3.0 form of E3 are made from
the July and August records by the description; the 0.2.1 form was recorded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest

from rolloutlog.contract.vocabulary import RunKind, Status
from rolloutlog.formats.foreign.era import Era
from rolloutlog.formats.foreign.glance import VersionSpan
from rolloutlog.formats.foreign.recorded import Origin
from rolloutlog.producers.importing.demo_records import demo_run
from rolloutlog.producers.importing.files.found_files import origin_of
from tests.importing.reading import form_of, read_line, read_raw, whose


def as_cohort(trace: dict[str, Any], **stamp: Any) -> dict[str, Any]:
    """A July trace as E2 wrote it: the stamp at the top."""
    said = trace["info"].pop("prime_rl")
    top = {"kind": said["kind"], "env_name": said["env_name"], "group_id": said["group_id"]}
    return {**trace, **top, "policy_version": said["policy_version"], "eval_step": None, **stamp}


def as_native(episode: dict[str, Any]) -> dict[str, Any]:
    """The trace of an August episode as verifiers 0.3.0 wrote it: its run on the trace, the rest in `info`."""
    (trace,) = episode["traces"]
    run, work = episode["run"], episode["run"]["work"]
    trace["verifiers"]["version"] = "0.3.0"
    trace["run"] = {"type": work["type"], "id": run["id"], "step": 3}
    said = {"env_name": episode["env"]["name"], "group_id": episode["group"]["id"]}
    trace["info"] |= {**said, "policy_version": work["policy"]["start"]}
    return trace


@pytest.fixture
def july(samples: Path) -> dict[str, Any]:
    file = samples / "july2026/run/rollouts/step_1/train_rollouts.jsonl"
    return orjson.loads(file.read_bytes().splitlines()[3])


@pytest.fixture
def august() -> dict[str, Any]:
    return orjson.loads((demo_run() / "rollouts/step_3/train/all/traces.jsonl").read_bytes().splitlines()[8])


def test_a_cohort_line(july: dict[str, Any]) -> None:
    """E2: kind, environment, group and policy stand at the top."""
    raw = orjson.dumps(as_cohort(july))
    assert form_of(raw) is Era.E2
    found = whose(raw)
    assert (found.run, found.group, found.kind) == (None, "00000000-0000-0000-0000-000000000003", RunKind.TRAIN)
    one = read_raw(raw, origin_of(Path("rollouts/step_4/train/all/traces.jsonl")))
    assert (one.env, one.policy, one.step, one.status) == ("echo", VersionSpan(0, 0), 4, Status.COMPLETED)
    assert one.trajectory.reward == 1.0
    assert len(one.trajectory.branches) == 2
    assert one.trajectory.segments.tolist() == [[0, 0, 0]] * 4


def test_an_eval_line_says_its_step(july: dict[str, Any]) -> None:
    """E2: `eval_step` is null for train."""
    raw = orjson.dumps(as_cohort(july, kind="eval", eval_step=40))
    assert whose(raw).kind is RunKind.EVAL
    assert read_raw(raw, Origin(step=4)).step == 40


def test_the_copy_of_a_cohort_has_the_same_value(july: dict[str, Any]) -> None:
    """`effective` brings the advantage, and says nothing else."""
    line = as_cohort(july)
    first = read_line(line, origin_of(Path("rollouts/step_4/train/all/traces.jsonl")))
    line["info"]["advantage"] = 0.25
    copy = read_line(line, origin_of(Path("rollouts/step_5/train/effective/traces.jsonl")))
    assert copy.trajectory.record_text == first.trajectory.record_text
    assert copy.notes == {"trained": True, "step": 5, "advantage": 0.25}
    assert first.notes == {}


def test_the_recorded_native_lines(samples: Path) -> None:
    """E3 of verifiers 0.2.1: golden facts of the four lines; rewards are numbers, `version` is 2."""
    lines = (samples / "e3/traces.v0.2.1.jsonl").read_bytes().splitlines()
    assert [form_of(raw) for raw in lines] == [Era.E3] * 4
    found = [(r.trajectory.reward, r.env, r.policy, r.step) for r in map(read_raw, lines)]
    assert found == [(reward, "echo", VersionSpan(0, 0), 1) for reward in (0.0, 1.0, 0.0, 1.0)]
    assert {(w.run, w.group, w.kind) for w in map(whose, lines)} == {
        ("run-demo", "00000000-0000-0000-0000-000000000000", RunKind.TRAIN)
    }
    first = read_raw(lines[0]).trajectory
    assert (len(first.nodes), len(first.token_ids), first.response_tokens) == (8, 172, 28)
    assert first.logprobs[0] == pytest.approx(-0.0123456789)
    assert "logprob_precision" not in first.record
    assert first.record["task"]["data"]["answer"] == "hi"


def test_native_lines_of_the_next_release(august: dict[str, Any]) -> None:
    """E3 of verifiers 0.3.0: `version` is 1, rewards have weights, the agent has a name."""
    raw = orjson.dumps(as_native(august))
    assert form_of(raw) is Era.E3
    found = whose(raw)
    assert (found.run, found.group) == ("run-demo", "00000000-0000-0000-0000-000000000003")
    one = read_raw(raw)
    assert (one.env, one.policy, one.step) == ("arith-longctx", VersionSpan(1, 1), 3)
    assert one.trajectory.reward == pytest.approx(1.1)
    assert one.trajectory.record["agents"][0]["name"] == "agent"
    assert "logprob_precision" not in one.trajectory.record


def test_a_native_eval_line(august: dict[str, Any]) -> None:
    line = as_native(august)
    line["run"]["type"] = "eval"
    assert whose(orjson.dumps(line)).kind is RunKind.EVAL
