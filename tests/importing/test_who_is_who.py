"""Who is who where lines name neither run nor group: which file, which of its equal lines, which group."""

from __future__ import annotations

import json
import os
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rolloutlog.contract.vocabulary import RunKind
from rolloutlog.producers.importing.demo_records import demo_run
from rolloutlog.producers.importing.report import Report
from tests.importing.paper_log import PaperLog

Write = Callable[..., Path]
Run = Callable[..., Report]

EPISODES = (demo_run() / "rollouts/step_3/train/all/traces.jsonl").read_bytes().splitlines()


def chat(example: int | None, prompt: str, answer: str, **more: Any) -> bytes:
    named = {} if example is None else {"example_id": example}
    asked = [{"role": "user", "content": prompt}]
    said = [{"role": "assistant", "content": answer}]
    return orjson.dumps({**named, "prompt": asked, "completion": said, "reward": 1.0, "metrics": {}, **more})


def write(path: Path, *lines: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"".join(line + b"\n" for line in lines))
    return path


def metadata(folder: Path, **facts: Any) -> None:
    write(folder / "metadata.json", orjson.dumps(facts))


def prompts(log: PaperLog) -> list[set[str]]:
    """The prompts of each group."""
    return [{member.texts[0] for member in members} for members in log.groups.values()]


def sizes(log: PaperLog) -> list[int]:
    """Rollouts of each group."""
    return sorted(map(len, log.groups.values()))


@pytest.mark.parametrize(("name", "group_size", "count"), [("mmmu", 3, 15), ("short", 4, 4), ("tokens", 4, 4)])
def test_equal_lines_of_one_file(name: str, group_size: int, count: int, samples: Path, tmp_path: Path) -> None:
    """Case: each is a rollout of its own; a copy adds nothing, in the same import or later, under any name."""
    file = samples / f"cases/identical-lines/{name}.jsonl"
    log = PaperLog()
    report = log.add(file, group_size=group_size)
    assert (report.imported, report.duplicates, report.cancelled) == (count, 0, 0)
    assert set(sizes(log)) == {group_size}
    rewards = [orjson.loads(line)["reward"] for line in file.read_bytes().splitlines()]
    assert Counter(rollout.record["reward"] for rollout in log.rollouts) == Counter(rewards)
    copy = shutil.copy(file, tmp_path / "another.jsonl")
    for paths in ([file], [Path(copy)], [file, Path(copy)]):
        report = log.add(*paths, group_size=group_size)
        assert (report.imported, report.duplicates) == (0, count * len(paths))
    both = PaperLog()
    assert both.add(Path(copy), file, group_size=group_size).imported == count
    assert both.said == log.said


def test_equal_lines_that_came_later(tmp_path: Path) -> None:
    """The file grew by a line that it has already."""
    log, file = PaperLog(), tmp_path / "results.jsonl"
    yes, no = chat(0, "7 prime?", "yes"), chat(0, "7 prime?", "no")
    for number, lines in enumerate([[yes], [yes, yes], [yes, yes, no], [yes, yes, no, yes]], 1):
        assert log.add(write(file, *lines), group_size=4).imported == 1
        assert len(log.rollouts) == number
    assert sizes(log) == [4]


@pytest.mark.parametrize("name", ["a-as-found", "b-info-null", "c-metrics-object", "d-info-metrics-absent"])
def test_a_hosted_download(name: str, samples: Path) -> None:
    """Case: chats that are JSON text are chats; problem, run, step and advantage are read, and the group they make."""
    log = PaperLog()
    report = log.add(samples / f"cases/hosted/{name}.jsonl")
    assert (report.imported, report.rejected, report.eras["E0"].annotations) == (2, 0, 2)
    ((first, second),) = log.groups.values()
    assert [first.record["reward"], second.record["reward"]] == [1.78, 0.78]
    for rollout in (first, second):
        messages = [node["message"] for node in rollout.record["nodes"]]
        assert [message["role"] for message in messages] == ["system", "user", "assistant", "tool", "assistant"]
        assert messages[2]["tool_calls"][0]["name"] == "lookup"
        assert rollout.record["task"]["idx"] == 4
        assert (rollout.headers.run, rollout.headers.env, rollout.headers.step) == ("bp6q", "org/logs", 40)
        assert not rollout.record["columns"].keys() & {"advantage", "run_id", "step", "problem_id", "env_name"}
    notes = [json.loads(event.value) for event in log.events.values() if b"advantage" in event.value[:40]]
    assert notes == [{"advantage": 0.5}, {"advantage": -0.5}]


def test_hosted_pages_of_one_run(tmp_path: Path, samples: Path) -> None:
    """Steps and problems are groups of their own, over several files; the same page twice is one."""
    first, second = map(orjson.loads, (samples / "cases/hosted/a-as-found.jsonl").read_bytes().splitlines())
    pages = [
        write(tmp_path / f"{step}.jsonl", *(orjson.dumps({**one, "step": step}) for one in (first, second)))
        for step in (40, 41)
    ]
    other = {**first, "problem_id": 5, "prompt": '[{"role": "user", "content": "another"}]'}
    log = PaperLog()
    assert log.add(*pages, write(tmp_path / "c.jsonl", orjson.dumps(other), orjson.dumps(second))).imported == 5
    assert sizes(log) == [1, 2, 2]
    assert log.add(*pages).imported == 0


def test_lines_without_an_id_are_told_apart_by_their_prompt(samples: Path) -> None:
    """Case: three prompts, two rollouts each."""
    log = PaperLog()
    report = log.add(samples / "cases/no-example-id.jsonl", group_size=2)
    assert report.imported == 6
    assert sizes(log) == [2, 2, 2]
    assert all(len(asked) == 1 for asked in prompts(log))


@pytest.mark.parametrize("named", [True, False])
def test_members_of_a_group_agree_in_prompt_and_environment(named: bool, tmp_path: Path) -> None:
    """One id with three prompts, and two environments that both have an id 0: each pair is a group; it is told."""
    lines = [
        chat(0 if named else None, prompt, answer, task=task)
        for answer in ("a", "b")
        for prompt in ("p", "q", "r")
        for task in ("math", "code")
    ]
    log = PaperLog()
    report = log.add(write(tmp_path / "results.jsonl", *lines), group_size=2)
    assert sizes(log) == [2] * 6
    assert all(len(asked) == 1 for asked in prompts(log))
    assert all(len({member.headers.env for member in members}) == 1 for members in log.groups.values())
    assert report.ambiguous.count == int(named)
    if named:
        assert report.ambiguous.first.endswith("results.jsonl")


def test_environments_beside_one_configuration(tmp_path: Path) -> None:
    """A group of environments has one name beside the file, and theirs in `task`."""
    metadata(tmp_path, env_id="both", rollouts_per_example=2)
    lines = [chat(0, "go", answer, task=task) for task in ("math", "code") for answer in ("a", "b")]
    log = PaperLog()
    log.add(write(tmp_path / "results.jsonl", *lines))
    assert sizes(log) == [2, 2]
    assert all(len({one.record["task"]["name"] for one in members}) == 1 for members in log.groups.values())


def test_nothing_to_tell_tasks_apart_by(tmp_path: Path) -> None:
    """Neither an id nor a word of a prompt: singles, whatever size is said."""
    log = PaperLog()
    report = log.add(write(tmp_path / "a.jsonl", *[chat(None, "", "x")] * 4), group_size=2)
    assert (report.imported, sizes(log)) == (4, [1, 1, 1, 1])


def test_traces_of_one_task_with_several_prompts(tmp_path: Path, samples: Path) -> None:
    """The same of bare traces (E1): what the task asks decides, or else what the model was shown."""
    raw = (samples / "july2026/run/rollouts/step_1/train_rollouts.jsonl").read_bytes().splitlines()
    said, shown = [], []
    for number in range(4):
        trace = orjson.loads(raw[0])
        trace.update(id=f"{number:032}", info={})
        trace["task"] = {"idx": 0, "prompt": f"prompt {number % 2}"}
        said.append(orjson.dumps(trace))
        trace["task"]["prompt"] = None
        trace["nodes"][0]["message"]["content"] = f"prompt {number % 2}"
        shown.append(orjson.dumps(trace))
    for lines in (said, shown):
        log = PaperLog()
        assert log.add(write(tmp_path / "train_rollouts.jsonl", *lines), group_size=2).ambiguous.count == 1
        assert sizes(log) == [2, 2]


def models(log: PaperLog) -> list[list[str]]:
    """The last words of each group's members."""
    return sorted([member.texts[-1] for member in members] for members in log.groups.values())


@pytest.mark.parametrize("folder", ["evals", "control"])
def test_evals_of_two_models(folder: str, samples: Path) -> None:
    """Case: however long the prompts are that both begin with."""
    log = PaperLog()
    report = log.add(samples / "cases/long-prompt" / folder)
    assert models(log) == [["model-a says 0"], ["model-b says 0", "model-b says 1"]]
    assert (report.cancelled, log.cancelled) == (1, 1)


def test_steps_of_one_run(samples: Path) -> None:
    log = PaperLog()
    log.add(samples / "cases/long-prompt/steps", group_size=2)
    assert models(log) == [["step 0 says 0"], ["step 7 says 0", "step 7 says 1"]]


def evals_of_equal_lines(root: Path, *, said: bool) -> list[Path]:
    """Model a wrote one line, model b the same one first and another one."""
    yes, no = chat(0, "7 prime?", "yes"), chat(0, "7 prime?", "no")
    for model, lines in (("a", [yes]), ("b", [yes, no])):
        folder = root / f"toy--{model}" / "1"
        write(folder / "results.jsonl", *lines)
        if said:
            metadata(folder, env_id="toy", model=model, rollouts_per_example=2)
    return [root / "toy--a", root / "toy--b"]


@pytest.mark.parametrize("said", [True, False])
def test_whole_lines_may_be_equal(said: bool, tmp_path: Path) -> None:
    """What lies beside a file, or its folder's name, says whose it is: equal lines of two models are two rollouts."""
    paths, log = evals_of_equal_lines(tmp_path / "evals", said=said), PaperLog()
    assert [log.add(path, group_size=2).imported for path in (*paths, *paths)] == [1, 2, 0, 0]
    assert models(log) == [["yes"], ["yes", "no"]]
    at_once = PaperLog()
    assert at_once.add(*reversed(paths), group_size=2).imported == 3
    assert at_once.said == log.said
    shutil.copytree(tmp_path / "evals", tmp_path / "moved")
    assert log.add(tmp_path / "moved", group_size=2).imported == 0


@pytest.mark.parametrize("step", [0, 7])
def test_equal_files_of_two_steps(step: int, tmp_path: Path) -> None:
    """The same answer at two steps is two rollouts; a copy of a step's file, elsewhere, is none."""
    lines = [chat(0, "7 prime?", "yes")] * 2
    files = [write(tmp_path / f"rollouts/step_{number}/train_rollouts.jsonl", *lines) for number in (0, 7)]
    log = PaperLog()
    assert [log.add(tmp_path, group_size=2).imported for _ in range(2)] == [4, 0]
    copy = write(tmp_path / "elsewhere/copy.jsonl", *lines)
    assert log.add(copy, group_size=2).imported == 0
    moved = tmp_path / f"other/step_{step}/renamed.jsonl"
    moved.parent.mkdir(parents=True)
    os.rename(files[0], moved)
    assert log.add(moved, group_size=2).imported == 0


def test_two_files_that_begin_alike(tmp_path: Path) -> None:
    """Nothing is said beside them: each has lines that the other has not."""
    same = [chat(0, "p", "a"), chat(0, "p", "b")]
    log = PaperLog()
    files = [write(tmp_path / f"{name}.jsonl", *same, chat(0, "p", name)) for name in ("x", "y")]
    assert [log.add(file, group_size=3).imported for file in (*files, *files)] == [3, 3, 0, 0]
    assert models(log) == [["a", "b", "x"], ["a", "b", "y"]]


def test_an_edited_file(tmp_path: Path) -> None:
    """A line of it was changed: only that one is new, where it was; elsewhere it would be another file."""
    lines = [chat(number, "p", "a") for number in range(4)]
    log, file = PaperLog(), tmp_path / "results.jsonl"
    log.add(write(file, *lines))
    report = log.add(write(file, lines[0], chat(1, "p", "changed"), *lines[2:]))
    assert (report.imported, report.duplicates) == (1, 3)


def test_an_edited_file_of_another_model(tmp_path: Path) -> None:
    """Overwritten by an eval of another model, some of whose lines are the same."""
    lines, log = [chat(number, "p", "a") for number in range(4)], PaperLog()
    file = tmp_path / "results.jsonl"
    for model, answer in (("a", "x"), ("b", "y")):
        metadata(tmp_path, env_id="toy", model=model)
        assert log.add(write(file, *lines, chat(4, "p", answer))).imported == 5


def test_an_older_copy_and_a_file_that_lost_its_torn_line(tmp_path: Path) -> None:
    lines = [chat(number, "p", "a") for number in range(4)]
    log = PaperLog()
    log.add(write(tmp_path / "results.jsonl", *lines))
    assert log.add(write(tmp_path / "backup.jsonl", *lines[:2])).imported == 0
    torn = tmp_path / "torn.jsonl"
    torn.write_bytes(b"\n".join(lines) + b"\n" + chat(5, "p", "a")[:20])
    report = log.add(torn)
    assert (report.imported, report.duplicates, report.rejected) == (0, 4, 1)


# what comes after the first import


def test_a_group_that_was_seen_half_written(tmp_path: Path) -> None:
    """Case (E4): its size was guessed; what comes later is a further group, and nothing is skipped."""
    log, file = PaperLog(), tmp_path / "grow/rollouts/step_3/train/all/traces.jsonl"
    for count, expected in ((2, [2]), (4, [2, 2]), (4, [2, 2])):
        report = log.add(write(file, *EPISODES[:count]))
        assert (report.rejected, sizes(log)) == (0, expected)
    assert not report.eras["E4"].skipped
    assert report.imported == 0


def test_a_group_whose_size_is_said_is_filled(tmp_path: Path) -> None:
    """The members that were cancelled when the source ended are completed all the same."""
    log, file = PaperLog(), tmp_path / "traces.jsonl"
    for count in (1, 3, 4):
        log.add(write(file, *EPISODES[:count]), group_size=4)
        assert (sizes(log), log.cancelled) == ([count], 4 - count)


def eval_stage(stage: str, folder: Path) -> Path:
    """A resumed eval of two examples, as it lies there after each stage."""
    full = [chat(example, f"q{example}", f"a{example}-{number}") for example in range(2) for number in range(2)]
    more = [chat(example, f"q{example}", f"a{example}-{number}") for example in range(2) for number in (2, 3)]
    torn = b"\n".join(full[:3]) + b"\n" + full[3][:40]
    whole = b"\n".join(full) + b"\n"
    text = {"1": torn, "2": whole, "2x": torn + full[3] + b"\n", "3": whole + b"\n".join(more) + b"\n"}[stage]
    metadata(folder, env_id="toy", model="m", rollouts_per_example=4 if stage == "3" else 2)
    (folder / "results.jsonl").write_bytes(text)
    return folder


def test_a_resumed_eval(tmp_path: Path) -> None:
    """Case (E0): each stage adds what it has new; more rollouts an example are further groups."""
    log = PaperLog()
    assert [log.add(eval_stage(stage, tmp_path)).imported for stage in ("1", "2", "3", "3")] == [3, 1, 4, 0]
    assert sizes(log) == [2, 2, 2, 2]
    assert all(len(asked) == 1 for asked in prompts(log))
    assert log.cancelled == 0
    other = PaperLog()
    report = other.add(eval_stage("2x", tmp_path))
    assert (report.imported, report.rejected) == (3, 1)
    assert other.add(eval_stage("2", tmp_path)).imported == 1


@pytest.mark.parametrize("size", [None, 2, 3])
def test_more_rollouts_of_a_named_group(size: int | None, tmp_path: Path) -> None:
    """However they come and whatever is said: all are imported, none twice, no group above its size."""
    log, file = PaperLog(), tmp_path / "traces.jsonl"
    lines = []
    for number in range(7):
        line = orjson.loads(EPISODES[0])
        line["traces"][0]["id"] = f"{number:032}"
        lines.append(orjson.dumps(line))
    for count in (1, 2, 5, 7, 7):
        log.add(write(file, *lines[:count]), group_size=size)
        assert len(log.rollouts) == count
    places = [(rollout.group, rollout.member) for rollout in log.rollouts]
    assert len(set(places)) == 7
    assert all(rollout.member < rollout.size for rollout in log.rollouts)


def test_a_group_above_what_readers_take(tmp_path: Path) -> None:
    """A constant in place of a group's id: as many groups as it takes."""
    lines = [
        orjson.dumps({"id": f"{number:032}", "task": {"idx": 0}, "nodes": [], "info": {"prime_rl": {"group_id": "0"}}})
        for number in range(5000)
    ]
    log = PaperLog()
    assert log.add(write(tmp_path / "train_rollouts.jsonl", *lines)).imported == 5000
    assert sizes(log) == [5000 - 4096, 4096]


def test_a_missing_member_of_an_eval_says_that_it_is_one(samples: Path) -> None:
    """Else a trainer, which passes over eval records, waits for the rest of that group."""
    log = PaperLog()
    log.add(samples / "cases/long-prompt/evals")
    (gone,) = [event for event in log.events.values() if dict(event.headers)["ce_type"] == b"group.cancelled"]
    assert dict(gone.headers)["ce_kind"] == RunKind.EVAL.encode()


# any history of a file


CUTS = st.lists(st.integers(1, 9), max_size=3)
ANSWERS = st.lists(st.tuples(st.integers(0, 2), st.sampled_from("ab")), min_size=1, max_size=9)


@settings(max_examples=40)
@given(
    answers=ANSWERS, cuts=st.lists(st.integers(1, 9), max_size=3), size=st.sampled_from([None, 2, 3]), data=st.data()
)
def test_any_history_of_a_file_is_one_import(
    answers: list[tuple[int, str]], cuts: list[int], size: int | None, data: st.DataObject
) -> None:
    """Seen at any lengths, under any names, killed anywhere: each line is one rollout, and nothing is there twice."""
    lines = [chat(example, f"q{example}", answer) for example, answer in answers]
    log = PaperLog()
    with TemporaryDirectory() as folder:
        for number, cut in enumerate(sorted(cuts)):
            file = write(Path(folder) / f"{data.draw(st.sampled_from('xy'))}.jsonl", *lines[:cut])
            log.add(file, group_size=size, stop=log.written + data.draw(st.integers(0, 6)) if number % 2 else None)
        last = write(Path(folder) / "last.jsonl", *lines)
        log.add(last, group_size=size)
        assert log.add(last, group_size=size).imported == 0
        copied = write(Path(folder) / "copied/results.jsonl", *lines)
        assert log.add(copied, group_size=size).imported == 0
    said = Counter((rollout.texts[0], rollout.texts[-1]) for rollout in log.rollouts)
    assert said == Counter((f"q{example}", answer) for example, answer in answers)
    assert all(len(asked) == 1 for asked in prompts(log))
    assert len({(rollout.group, rollout.member) for rollout in log.rollouts}) == len(answers)
