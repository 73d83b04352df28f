"""Era E4: one episode a line (design/eras#episodes; the run that comes with the package)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest

from rolloutlog.buffer.derivations.snapshots import snapshots_of
from rolloutlog.contract.events.validation import Rejected
from rolloutlog.contract.record.trajectory import PARENT, SAMPLED, SEGMENTS, TOKENS
from rolloutlog.contract.vocabulary import RejectReason, RunKind, Status
from rolloutlog.formats.foreign.era import Era
from rolloutlog.formats.foreign.glance import VersionSpan
from rolloutlog.formats.foreign.recorded import TraceIdentity
from rolloutlog.producers.importing.demo_records import demo_run
from rolloutlog.producers.importing.files.found_files import origin_of
from tests.importing.reading import form_of, read_line, read_raw, reason_of, whose

STEP = demo_run() / "rollouts" / "step_3" / "train"


def raw_lines(cohort: str = "all") -> list[bytes]:
    return (STEP / cohort / "traces.jsonl").read_bytes().splitlines()


@pytest.fixture
def linear() -> dict[str, Any]:
    return orjson.loads(raw_lines()[0])


def test_a_linear_episode() -> None:
    """Golden facts of the first line: nodes, tokens, reward, policy, precision."""
    raw = raw_lines()[0]
    assert form_of(raw) is Era.E4
    origin = origin_of(STEP / "all" / "traces.jsonl")
    recorded = read_raw(raw, origin)
    trajectory = recorded.trajectory
    assert trajectory.nodes[:, PARENT].tolist() == [-1, 0, 1, 2, 3]
    assert trajectory.nodes[:, TOKENS].tolist() == [458, 20, 49, 12, 13]
    assert trajectory.nodes[:, SAMPLED].tolist() == [0, 0, 42, 0, 6]
    assert trajectory.token_ids[:3].tolist() == [1, 1110, 201]
    assert trajectory.logprobs[:3].tolist() == pytest.approx([-0.1, -0.0631, -0.4172])
    assert (len(trajectory.token_ids), trajectory.response_tokens) == (552, 48)
    assert trajectory.reward == pytest.approx(1.1)
    assert recorded.status is Status.COMPLETED
    assert (recorded.env, recorded.dispatch_step, recorded.step) == ("arith", 2, 3)
    assert recorded.policy == VersionSpan(1, 2)
    assert trajectory.record["logprob_precision"] == 1e-4
    assert trajectory.record["stop_condition"] == "agent_completed"
    assert trajectory.record["verifiers"] == {"version": "0.4.0"}
    assert trajectory.record["task"]["data"]["answer"] == "391"


def test_whose_an_episode_is() -> None:
    """Run, group, trace and kind, the same from bytes as from the parsed line."""
    raw = raw_lines()[0]
    assert whose(raw) == TraceIdentity(
        traces=("53e9779ba1934cb99e96dbbcaa6866d2",),
        run="run-demo",
        group="00000000-0000-0000-0000-000000000001",
        kind=RunKind.TRAIN,
        env="arith",
        task="bfbbb809f9c43f10c312ab3e21741afa919d1cc4ede9e717f83ee26aac2a2c1e",
        scope="run-demo",
    )


def test_every_sampled_node_has_one_segment_at_the_start() -> None:
    """A policy known per episode (grain=episode) is the start's, of timeline 0 (design/eras#policies)."""
    for raw in raw_lines():
        trajectory = read_raw(raw).trajectory
        assert trajectory.record["grain"] == "episode"
        assert (trajectory.nodes[:, SEGMENTS] == (trajectory.nodes[:, SAMPLED] > 0)).all()
        assert trajectory.segments.tolist() == [[0, 1, 0]] * int(trajectory.nodes[:, SEGMENTS].sum())


def test_compaction_is_a_fork() -> None:
    """The restart is a second child of the system node; both branches are there (design/eras#nodes)."""
    trajectory = read_raw(raw_lines()[8]).trajectory
    assert trajectory.branches == [[0, 1, 2, 3, 4, 5, 6, 7], [0, 8, 9]]
    assert [message["role"] for message in trajectory.messages if message][-2:] == ["user", "assistant"]


def test_the_effective_copy_differs_in_notes_only() -> None:
    """The copy brings the advantage and says that it was trained; its value is the same bytes (design/eras#cohorts)."""
    first = {orjson.loads(raw)["id"]: read_raw(raw) for raw in raw_lines()}
    origin = origin_of(STEP / "effective" / "traces.jsonl")
    copies = raw_lines("effective")
    assert len(copies) == 12
    for raw in copies:
        copy = read_raw(raw, origin)
        whole = first[orjson.loads(raw)["id"]]
        assert copy.trajectory == whole.trajectory
        assert copy.trajectory.record_text == whole.trajectory.record_text
        assert whole.notes == {}
        assert copy.notes["trained"] is True
        assert copy.notes["step"] == 3
        advantages = np.array(copy.notes["advantages"], np.float64)
        assert len(advantages) == copy.trajectory.response_tokens
        assert advantages == pytest.approx(copy.notes["advantage"], abs=1e-4)


def test_nothing_of_the_line_is_lost(linear: dict[str, Any]) -> None:
    """Metrics, info, timing, calls, tools, the agent's configuration, and the episode's own fields stay."""
    trace = linear["traces"][0]
    record = read_line(orjson.loads(orjson.dumps(linear))).trajectory.record
    for name in ("rewards", "metrics", "info", "timing", "calls", "tools", "agent", "extra_usage", "is_completed"):
        assert record[name] == trace[name], name
    assert record["episode"] == {k: v for k, v in linear.items() if k not in ("traces", "task")}
    for kept, node in zip(record["nodes"], trace["nodes"], strict=True):
        arrays = ("token_ids", "mask", "is_content", "logprobs", "parent")
        assert kept == {k: v for k, v in node.items() if k not in arrays}
    assert record["agents"] == [
        {"name": "agent", "trainable": True, "reward": pytest.approx(1.1), "root": 0, "trace": trace["id"]}
    ]


def test_several_agents_are_roots_of_one_forest(linear: dict[str, Any]) -> None:
    """One table `agents`; the main one is the first that may be trained (design/record#agents)."""
    judge = orjson.loads(orjson.dumps(linear["traces"][0]))
    judge["id"], judge["rewards"] = "b" * 32, {"fair": {"score": 0.5, "weight": 1.0}}
    judge["agent"]["name"], judge["agent"]["trainable"] = "judge", False
    judge["nodes"][1]["semantic_parents"] = [{"node": 0, "type": "continuation"}]
    linear["traces"].insert(0, judge)
    recorded = read_line(linear)
    trajectory = recorded.trajectory
    assert trajectory.parents == [-1, 0, 1, 2, 3, -1, 5, 6, 7, 8]
    assert trajectory.nodes[:, 4].tolist() == [0] * 5 + [1] * 5
    agents = [(a["name"], a["trainable"], a["root"], a["reward"]) for a in trajectory.record["agents"]]
    assert agents == [("judge", False, 0, 0.5), ("agent", True, 5, pytest.approx(1.1))]
    assert trajectory.reward == pytest.approx(1.1)
    assert trajectory.record["nodes"][1]["semantic_parents"] == [{"node": 0, "type": "continuation"}]
    linear["traces"][1]["info"]["snapshots"] = {"2": "kept"}
    assert snapshots_of(read_line(linear).trajectory) == {7: "kept"}, "of its own trace"
    linear["traces"].reverse()
    shifted = read_line(linear).trajectory.record
    assert shifted["nodes"][6]["semantic_parents"] == [{"node": 5, "type": "continuation"}]


@pytest.mark.parametrize(
    "change",
    [
        {"ok": False},
        {"errors": [{"type": "SandboxError", "message": "boom"}]},
        {"is_completed": False},
        {"nodes": []},
    ],
)
def test_no_result_is_failed(linear: dict[str, Any], change: dict[str, Any]) -> None:
    """Importers never write `aborted`: what has no result failed."""
    linear["traces"][0].update(change)
    assert read_line(linear).status is Status.FAILED


def test_an_episode_without_traces_failed(linear: dict[str, Any]) -> None:
    """`traces` may be empty; the episode's own id stands for it (design/eras#episodes)."""
    linear["traces"], linear["ok"] = [], False
    raw = orjson.dumps(linear)
    assert whose(raw).traces == (linear["id"],)
    assert read_raw(raw).status is Status.FAILED


def test_a_frozen_model_has_no_policy(linear: dict[str, Any]) -> None:
    """No `work.policy`: no segments, and grain none (design/eras#policies)."""
    del linear["run"]["work"]["policy"]
    recorded = read_line(linear)
    assert recorded.policy is None
    assert recorded.trajectory.record["grain"] == "none"
    assert not len(recorded.trajectory.segments)


def test_rounding_is_seen_in_the_logprobs(linear: dict[str, Any]) -> None:
    """0.4.0 rounds unless told otherwise; 0.3.1 never does (design/eras#nodes)."""
    linear["traces"][0]["verifiers"]["version"] = "0.3.1"
    assert "logprob_precision" not in read_line(orjson.loads(orjson.dumps(linear))).trajectory.record
    linear["traces"][0]["verifiers"]["version"] = "0.4.0"
    linear["traces"][0]["nodes"][2]["logprobs"][0] = -0.123456
    assert "logprob_precision" not in read_line(linear).trajectory.record


def test_a_call_says_how_its_node_was_sampled(linear: dict[str, Any]) -> None:
    """Temperature stands at the call, often null (design/eras#trace)."""
    linear["traces"][0]["calls"][0]["sampling"] = {"temperature": 0.7, "top_p": None}
    nodes = read_line(linear).trajectory.record["nodes"]
    assert nodes[2]["temperature"] == 0.7
    assert "top_p" not in nodes[2]
    assert "temperature" not in nodes[4]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"mask": [True]}, RejectReason.LENGTHS),
        ({"is_content": [True]}, RejectReason.LENGTHS),
        ({"logprobs": [-1.0]}, RejectReason.LENGTHS),
        ({"logprobs": [None] * 42}, RejectReason.LOGPROBS),
        ({"token_ids": ["a"] * 49}, RejectReason.SHAPE),
        ({"token_ids": [2**31] * 49}, RejectReason.SHAPE),
        ({"token_ids": 7}, RejectReason.SHAPE),
        ({"token_ids": [True] * 49}, RejectReason.SHAPE),
        ({"token_ids": [1.0] * 49}, RejectReason.SHAPE),
        ({"token_ids": [-1] * 49}, RejectReason.TOKEN_IDS),
        ({"logprobs": [False] * 42}, RejectReason.LOGPROBS),
        ({"logprobs": [0.7] * 42}, RejectReason.LOGPROBS),
        ({"parent": True}, RejectReason.PARENT),
        ({"parent": 2}, RejectReason.PARENT),
        ({"parent": 99}, RejectReason.PARENT),
        ({"parent": "x"}, RejectReason.SHAPE),
        ({"message": {"content": "no role"}}, RejectReason.SHAPE),
        ({"message": 3}, RejectReason.SHAPE),
        ({"sampled": False}, RejectReason.SHAPE),
    ],
)
def test_a_bad_node_is_rejected_with_its_reason(
    linear: dict[str, Any], change: dict[str, Any], reason: RejectReason
) -> None:
    """Bad input: lengths that disagree, parents out of range, numbers that don't fit."""
    linear["traces"][0]["nodes"][2].update(change)
    with pytest.raises(Rejected) as caught:
        read_line(linear)
    assert caught.value.reason is reason


@pytest.mark.parametrize(
    ("fact", "said"),
    [
        ('"x_seed":340282366920938463463374607431768211455', r"traces\[0\]\.metrics\.x_seed .* 64 bits"),
        ('"x_seed":-99999999999999999999', r"traces\[0\]\.metrics\.x_seed .* 64 bits"),
        ('"x_loss":NaN', r"traces\[0\]\.metrics\.x_loss is no number"),
        ('"x_loss":1e400', "infinity"),
        ('"x_seed":18446744073709551615', None),
        ('"x_loss":0.1000000000000000055511151231257827', None),
    ],
)
def test_a_number_of_a_line_is_kept_or_its_field_named(linear: dict[str, Any], fact: str, said: str | None) -> None:
    """Never a float in a whole number's place, never null in a NaN's."""
    linear["traces"][0]["metrics"] = {"mark": 1}
    raw = orjson.dumps(linear).replace(b'"mark":1', fact.encode())
    if said is None:
        assert read_raw(raw).trajectory.record["metrics"] == orjson.loads("{" + fact + "}")
    else:
        with pytest.raises(Rejected, match=said):
            read_raw(raw)


@pytest.mark.parametrize(
    "score", [True, {"score": True}, {"score": 1.0, "weight": True}, "1", 1e39, {"score": 1e300, "weight": 1e300}]
)
def test_a_score_is_a_number_of_float32(linear: dict[str, Any], score: Any) -> None:
    linear["traces"][0]["rewards"] = {"exact": score}
    assert reason_of(linear) is RejectReason.SHAPE


@pytest.mark.parametrize("name", ["run", "group", "env", "task", "traces"])
@pytest.mark.parametrize("value", [3, "x", [1], {"id": 5}])
def test_another_shape_is_rejected(linear: dict[str, Any], name: str, value: Any) -> None:
    """A foreign dict never makes the reader crash."""
    linear[name] = value
    assert reason_of(linear) in (None, RejectReason.SHAPE, RejectReason.ERA_UNKNOWN)


def test_the_demo_run_is_where_the_package_is() -> None:
    assert sorted(path.name for path in Path(demo_run()).rglob("*.jsonl")) == ["traces.jsonl"] * 2
