"""Era E0: flat chats of verifiers v0, with and without their steps (design/eras#chats)."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest

from rolloutlog.contract.record.trajectory import PARENT, SAMPLED, TOKENS
from rolloutlog.contract.vocabulary import RejectReason, RunKind, Status
from rolloutlog.formats.foreign.era import Era
from rolloutlog.producers.importing.report import Report
from tests.importing.reading import form_of, read_line, read_raw, reason_of, whose


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def assistant(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


def step(prompt: list[Any], completion: list[Any], asked: list[int], answered: list[int], **more: Any) -> Any:
    tokens = {
        "prompt_ids": asked,
        "prompt_mask": [0] * len(asked),
        "completion_ids": answered,
        "completion_mask": [1] * len(answered),
        "completion_logprobs": [-0.1 * i for i in range(len(answered))],
    }
    return {"prompt": prompt, "completion": completion, "tokens": {**tokens, **more}, "reward": None}


def chat(**changes: Any) -> dict[str, Any]:
    return {
        "example_id": 0,
        "prompt": [user("17*23?")],
        "completion": [assistant("391")],
        "reward": 1.0,
        "error": None,
        "is_completed": True,
        "metrics": {},
        **changes,
    }


def test_the_recorded_eval(samples: Path) -> None:
    """Golden: four records of two examples; no tokens, no policy, `correct` kept once, among the metrics."""
    lines = (samples / "v0/results.jsonl").read_bytes().splitlines()
    assert [form_of(raw) for raw in lines] == [Era.E0] * 4
    found = [(r.trajectory.reward, r.status, r.trajectory.parents) for r in map(read_raw, lines)]
    assert found == [(reward, Status.COMPLETED, [-1, 0, 1]) for reward in (0.0, 1.0, 0.0, 1.0)]
    record = read_raw(lines[0]).trajectory.record
    assert record["metrics"] == {"correct": 0.0, "num_turns": 1.0}
    assert record["columns"] == {}
    assert record["stop_condition"] == "max_turns_reached"
    assert record["task"]["answer"] == "391"
    assert [node["sampled"] for node in record["nodes"]] == [False, False, True]
    assert record["grain"] == "none"


def test_metadata_beside_it(samples: Path, dry_run: Callable[..., Report]) -> None:
    """`metadata.json` makes it an eval, of so many rollouts an example."""
    report = dry_run(samples / "v0")
    assert (report.imported, report.groups, report.singles) == (4, 2, 0)
    assert report.passed["no-lines"].count == 1


def test_a_record_is_known_by_its_digest() -> None:
    """v0 has no id: which of the equal lines of its file it is, its file must tell."""
    one, other = orjson.dumps(chat()), orjson.dumps(chat(reward=0.0))
    assert whose(one) == whose(orjson.dumps(chat())), "an equal line"
    assert whose(one).mark != whose(other).mark
    assert (whose(one).traces, whose(one).is_of_a_file) == ((), True)
    assert whose(one).kind is RunKind.TRAIN


def test_id_is_an_alias_of_example_id() -> None:
    """Tag v0.1.5 wrote `id`."""
    line = chat(id=7)
    del line["example_id"]
    assert whose(orjson.dumps(line)).task == "7"
    assert read_line(line).trajectory.record["task"]["idx"] == 7


def test_a_prompt_may_be_text() -> None:
    """Completion mode: prompt and completion are plain text."""
    messages = read_line(chat(prompt="17*23=", completion="391")).trajectory.messages
    assert messages == [{"role": "user", "content": "17*23="}, {"role": "assistant", "content": "391"}]


def test_tool_calls_become_flat() -> None:
    """OpenAI's nesting, as an object and as JSON text, with arguments as text and as an object."""
    call = {"id": "c1", "type": "function", "function": {"name": "bash", "arguments": '{"command": "ls"}'}}
    other = {"id": "c2", "function": {"name": "bash", "arguments": {"command": "pwd"}}}
    calls = {"role": "assistant", "content": None, "tool_calls": [call, orjson.dumps(other).decode()]}
    answers = [{"role": "tool", "tool_call_id": name, "content": "x"} for name in ("c1", "c2")]
    messages = read_line(chat(completion=[calls, *answers, assistant("done")])).trajectory.messages
    assert messages[1] == {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {"id": "c1", "type": "function", "name": "bash", "arguments": '{"command": "ls"}'},
            {"id": "c2", "name": "bash", "arguments": '{"command":"pwd"}'},
        ],
    }
    assert messages[2] == {"role": "tool", "tool_call_id": "c1", "content": "x"}


def test_an_error_failed() -> None:
    """`error` is an object with its chain, or text in older ones."""
    error = {"error": "ToolError", "error_chain_repr": "...", "error_chain_str": "tool -> timeout"}
    one = read_line(chat(error=error))
    assert one.status is Status.FAILED
    assert one.trajectory.record["errors"] == [{"type": "ToolError", "message": "tool -> timeout", **error}]
    assert read_line(chat(error="boom")).trajectory.record["errors"] == [{"type": "Error", "message": "boom"}]


def test_columns_that_are_no_metrics_are_kept() -> None:
    one = read_line(chat(metrics={"correct": 1.0}, correct=1.0, my_column=[1, 2]))
    assert one.trajectory.record["columns"] == {"my_column": [1, 2]}


def test_steps_that_go_on_are_one_path() -> None:
    """The extension property: each prompt begins with all that was said before; only what is new is added."""
    first, tool = [user("q")], {"role": "tool", "tool_call_id": "c", "content": "r"}
    steps = [
        step(first, [assistant("a")], [1, 2], [3, 4]),
        step([*first, assistant("a"), tool], [assistant("b")], [1, 2, 3, 4, 5], [6], routed_experts=[[1]]),
    ]
    line = chat(prompt=first, completion=[assistant("a"), tool, assistant("b")], trajectory=steps)
    trajectory = read_line(line).trajectory
    assert trajectory.nodes[:, PARENT].tolist() == [-1, 0, 1, 2]
    assert trajectory.nodes[:, TOKENS].tolist() == [2, 2, 1, 1]
    assert trajectory.nodes[:, SAMPLED].tolist() == [0, 2, 0, 1]
    assert trajectory.token_ids.tolist() == [1, 2, 3, 4, 5, 6]
    assert trajectory.logprobs.tolist() == pytest.approx([0.0, -0.1, 0.0])
    assert [message["role"] for message in trajectory.messages if message] == ["user", "assistant", "tool", "assistant"]
    assert trajectory.record["nodes"][3]["step"] == {"reward": None, "routed_experts": [[1]]}


def test_a_step_that_does_not_go_on_is_a_branch() -> None:
    """Compaction, or stripped thinking: another prompt begins a tree with all of its tokens."""
    steps = [
        step([user("q")], [assistant("a")], [1, 2], [3]),
        step([user("summary")], [assistant("b")], [1, 9], [8]),
        step([user("summary"), assistant("b"), user("go on")], [assistant("c")], [1, 9, 8, 7, 7], [6]),
    ]
    trajectory = read_line(chat(trajectory=steps)).trajectory
    assert trajectory.branches == [[0, 1], [2, 3, 4, 5]]
    assert trajectory.nodes[:, TOKENS].tolist() == [2, 1, 2, 1, 2, 1]


def test_what_follows_the_last_step_is_context() -> None:
    """A last answer of the environment, after which nothing was sampled."""
    line = chat(completion=[assistant("a"), user("well done")], prompt=[user("q")])
    line["trajectory"] = [step([user("q")], [assistant("a")], [1], [2])]
    trajectory = read_line(line).trajectory
    assert trajectory.parents == [-1, 0, 1]
    assert [node["sampled"] for node in trajectory.record["nodes"]] == [False, True, False]


def test_a_masked_completion() -> None:
    """Tool tokens inside a completion: log-probs come parallel to the ids, and are compact after."""
    one = step([user("q")], [assistant("a")], [1], [2, 3, 4], completion_mask=[1, 0, 1])
    trajectory = read_line(chat(trajectory=[one])).trajectory
    assert trajectory.mask.tolist() == [0, 1, 0, 1]
    assert trajectory.logprobs.tolist() == pytest.approx([0.0, -0.2])


def test_steps_without_tokens() -> None:
    """`tokens` is null where the client gave none; messages decide what goes on."""
    steps = [step([user("q")], [assistant("a")], [], []), step([user("q"), assistant("a"), user("r")], [], [], [])]
    for one in steps:
        one["tokens"] = None
    trajectory = read_line(chat(trajectory=steps)).trajectory
    assert trajectory.parents == [-1, 0, 1, 2]
    assert not len(trajectory.token_ids)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"completion": 3}, RejectReason.SHAPE),
        ({"prompt": [3]}, RejectReason.SHAPE),
        ({"reward": "x"}, RejectReason.SHAPE),
        ({"trajectory": [step([], [], [1], [2], completion_logprobs=[0.1, 0.2])]}, RejectReason.LENGTHS),
        ({"trajectory": [step([], [], [1], [2, 3], completion_mask=[1])]}, RejectReason.LENGTHS),
        ({"trajectory": [step([], [], [1], [2], completion_logprobs=[None])]}, RejectReason.LOGPROBS),
    ],
)
def test_a_bad_chat_is_rejected(changes: dict[str, Any], reason: RejectReason) -> None:
    assert reason_of(chat(**changes)) is reason


CHAT = [{"role": "assistant", "content": 'a "quoted" word'}]


@pytest.mark.parametrize(
    "text",
    [
        json.dumps(CHAT), json.dumps(CHAT, indent=2), json.dumps(json.dumps(CHAT)), " " + json.dumps(CHAT[0]),
        json.dumps([{"content": CHAT[0]["content"], "role": "assistant"}]),
    ],
)  # fmt: skip
def test_a_chat_kept_as_text_is_a_chat(text: str) -> None:
    """However it was written, and whichever key comes first."""
    assert read_line(chat(completion=text)).trajectory.messages[1:] == CHAT
    assert whose(orjson.dumps(chat(prompt=text))).prompt == whose(orjson.dumps(chat(prompt=CHAT))).prompt


@pytest.mark.parametrize("name", ["example_id", "problem_id", "id"])
def test_a_name_of_an_example_is_a_text_or_a_whole_number(name: str) -> None:
    """Whichever column has it: any other is refused, not passed over."""
    line = {key: said for key, said in chat().items() if key != "example_id"}
    assert [whose(orjson.dumps({**line, name: said})).task for said in (0, "0", "", None)] == ["0", "0", "", ""]
    for said in (1.0, True, {"a": 1}, [1]):
        assert reason_of({**line, name: said}) is RejectReason.SHAPE


@pytest.mark.parametrize(
    ("first", "more"),
    [
        ("id", {"content": "a"}), ("type", {"content": "a"}), ("reasoning_content", {}), ("reasoning", {}),
        ("refusal", {"tool_calls": []}), ("metadata", {"tool_calls": []}), ("annotations", {"content": None}),
    ],
)  # fmt: skip
def test_a_chat_kept_as_text_may_begin_with_any_key(first: str, more: dict[str, Any]) -> None:
    message = {first: "x", "role": "assistant", **more}
    kept = {key: value for key, value in message.items() if key != "tool_calls"}
    for said in ([message], [message, message], message):
        messages = read_line(chat(completion=json.dumps(said))).trajectory.messages[1:]
        assert messages == [kept] * (len(said) if isinstance(said, list) else 1)


@pytest.mark.parametrize(
    "text",
    [
        '[{"id": 7, "role": "user"}]', '{"id": 7, "role": "user", "content": ', '[{"id": 7, "role": "user"}, 3]',
        "391", "", "[1, 2]", '{"answer": 391}', '[{"role": "admin"}]', '{"name": "Bob", "role": "admin", "x": ', "[",
        '"q"', 'The role is: [{"role": "user"}]', '[{"name": "f", "arguments": {}}]',
    ],
)  # fmt: skip
def test_other_text_stays_text(text: str) -> None:
    """Completion mode: an answer may be JSON, and no chat."""
    assert read_line(chat(completion=text)).trajectory.messages[1:] == [{"role": "assistant", "content": text}]


@pytest.mark.parametrize(
    "text", [json.dumps(CHAT)[:-5], str(CHAT), json.dumps([*CHAT, 3]), json.dumps([*CHAT, {"role": "nobody"}])]
)
def test_a_chat_that_can_not_be_read_is_no_message(text: str) -> None:
    """Torn, written as Python writes it, or with parts that are no messages: refused."""
    assert reason_of(chat(completion=text)) is RejectReason.SHAPE
    assert reason_of(chat(prompt=text)) is RejectReason.SHAPE


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("metrics", "", None), ("metrics", '{"x": 1.0}', None), ("metrics", "[1]", RejectReason.SHAPE),
        ("metrics", "{", RejectReason.SHAPE), ("timing", '{"total": 1}', None), ("info", "free text", None),
        ("trajectory", "[]", None), ("trajectory", "{}", RejectReason.SHAPE), ("token_usage", "null", None),
    ],
)  # fmt: skip
def test_columns_kept_as_text(name: str, text: str, reason: RejectReason | None) -> None:
    assert reason_of(chat(**{name: text})) is reason


def test_an_advantage_is_a_note() -> None:
    """It is said of the rollout later, by who trained it."""
    one = read_line(chat(advantage=-0.5))
    assert (one.notes, one.trajectory.record["columns"]) == ({"advantage": -0.5}, {})
    assert read_line(chat(advantage=None)).notes == {}
