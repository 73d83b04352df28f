"""A training job of several ranks: rank 0 reads and writes, all train whole steps (design/trainer#ranks)."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

from rolloutlog.contract.events.policy_versions import fold
from rolloutlog.contract.ids import id_of
from rolloutlog.contract.policies import History
from rolloutlog.contract.topics import Topic
from rolloutlog.contract.vocabulary import DropReason
from tests.trainer.desk import rollout
from tests.trainer.log import Log
from tests.trainer.test_offline import offline, recorded
from tests.trainer.test_stream import group, with_trainer

pytestmark = pytest.mark.broker
PROCESS = Path(__file__).with_name("rank_process.py")


def job(
    log: Log, folder: Path, size: int, mode: str = "train", **trainer: Any
) -> list[tuple[int, list[dict[str, Any]], str]]:
    """Exit code, what it said, and what it complained of, of each rank."""
    settings = with_trainer(
        log.settings, batch_groups=2, staleness={"max_staleness": "none"}, **trainer
    ).model_dump_json()
    processes = [
        subprocess.Popen(
            [sys.executable, str(PROCESS), str(rank), str(size), str(folder / f"meet-{size}-{mode}"), mode, settings],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for rank in range(size)
    ]  # fmt: skip
    ended = [process.communicate(timeout=120) for process in processes]
    return [
        (process.returncode, [json.loads(line) for line in out.splitlines() if line.startswith("{")], err)
        for process, (out, err) in zip(processes, ended, strict=True)
    ]


@pytest.mark.parametrize("size", [2, 3])
def test_every_rank_has_its_share_of_every_step(log: Log, tmp_path: Path, size: int) -> None:
    asyncio.run(log.write(*(record for name in "abcdef" for record in group(name))))
    ranks = job(log, tmp_path, size, "minis")
    for code, _, complaint in ranks:
        assert code == 0, complaint
    said = [[line for line in lines if "epoch" not in line] for _, lines, _ in ranks]
    assert all(lines[-1] == {"ended": True} for lines in said)
    steps = list(zip(*(lines[:-1] for lines in said), strict=True))
    assert [[line["step"] for line in step] for step in steps] == [[n] * size for n in (1, 2, 3)]
    seen = Counter[tuple[str, int]]()
    for step in steps:
        assert len({line["packs"] for line in step}) == 1
        assert {line["tokens"] for line in step} == {step[0]["total"]} == {float(sum(line["labels"] for line in step))}
        assert {line["sequences"] for line in step} == {4}
        filled = sum(line["unlabelled"] for line in step)
        seen.update(tuple(sample) for line in step for sample in line["samples"])
        assert filled < size
    check_minis([[line for line in lines if "epoch" in line] for _, lines, _ in ranks])
    members = {(id_of(name), member) for name in "abcdef" for member in range(2)}
    assert seen.keys() == members
    finals = asyncio.run(log.finals())
    assert sorted(final.group for final in finals) == sorted(map(id_of, "abcdef"))
    history, uris = History(), set[str | None]()
    for event in asyncio.run(log.read(Topic.POLICY_VERSIONS)):
        if (published := fold(history, event)) is not None:
            uris.add(published.uri)
    assert uris == {None, "file:///by-rank-0"}


def check_minis(said: list[list[dict[str, Any]]]) -> None:
    """Two optimiser steps in each of two epochs of three steps: a whole group each, on whichever ranks, and
    denominators of all ranks."""
    minis = list(zip(*said, strict=True))
    assert [mini[0]["epoch"] for mini in minis] == [0, 0, 1, 1] * 3
    for mini in minis:
        assert len({line["packs"] for line in mini}) == 1
        assert {line["tokens"] for line in mini} == {sum(line["labels"] for line in mini)}
        assert len({group for line in mini for group in line["groups"]}) == 1
    by_epoch = [{group for mini in minis[at : at + 2] for line in mini for group in line["groups"]} for at in (0, 2)]
    assert by_epoch[0] == by_epoch[1]
    assert len(by_epoch[0]) == 2


def test_another_number_of_ranks_goes_on_from_a_checkpoint(log: Log, tmp_path: Path) -> None:
    """Rank 0 writes it, all load it; each rank's random numbers go on, those of one that is new are its own."""
    randoms: list[float] = []
    for steps, (size, name) in enumerate(((2, "a"), (3, "c"))):
        asyncio.run(log.write(*group(name), *group(chr(ord(name) + 1))))
        ranks = job(log, tmp_path, size, "resume")
        assert [code for code, _, _ in ranks] == [0] * size, ranks
        assert [lines[0]["weight"] for _, lines, _ in ranks] == [steps] * size
        assert [lines[1]["weight"] for _, lines, _ in ranks] == [steps + 1] * size
        if randoms:
            assert [lines[0]["random"] for _, lines, _ in ranks[:2]] == randoms
        randoms = [lines[1]["random"] for _, lines, _ in ranks]
        assert len({*randoms}) == size
    assert sorted(final.step for final in asyncio.run(log.finals())) == [1, 1, 2, 2]
    files = sorted(path.suffix for path in (tmp_path / "checkpoints").iterdir())
    assert files == [".safetensors"] * 2, "with the step, and after the last one"


def test_ranks_train_what_an_ended_run_has_recorded(log: Log, tmp_path: Path) -> None:
    """Offline, twice through: every member trains in each pass, but for a group that no pack can hold."""
    asyncio.run(recorded(log, *"abc"))
    asyncio.run(log.write(*(rollout(m, [4] * 20, group=id_of("long")) for m in range(2))))
    mine = asyncio.run(offline(log, max_passes=2))
    ranks = job(mine, tmp_path, 2, max_passes=2)
    assert [code for code, _, _ in ranks] == [0, 0], ranks
    seen = Counter(tuple(sample) for _, lines, _ in ranks for line in lines[:-1] for sample in line["samples"])
    assert seen == {(id_of(name), member): 2 for name in "abc" for member in range(2)}
    finals = asyncio.run(mine.finals())
    assert {final.group for final in finals if final.reason is DropReason.UNUSABLE} == {id_of("long")}
    steps = Counter((final.pass_number, final.step) for final in finals)
    assert steps == {(1, 1): 2, (1, 2): 2, (2, 3): 2, (2, 4): 2}


def test_a_rank_that_dies_ends_the_job_and_nothing_of_its_step_is_told(log: Log, tmp_path: Path) -> None:
    asyncio.run(log.write(*group("a"), *group("b")))
    (code, _, complaint), (dead, _, _) = job(log, tmp_path, 2, "die")
    assert dead == 9
    assert code != 0, complaint
    assert asyncio.run(log.finals()) == []
    ranks = job(log, tmp_path, 2)
    assert [code for code, _, _ in ranks] == [0, 0]
    assert len(asyncio.run(log.finals())) == 2


def test_what_fails_on_rank_0_is_raised_on_all(log: Log, tmp_path: Path) -> None:
    asyncio.run(log.write(*group("a"), *group("b")))
    (first, _, why), (second, _, heard) = job(log, tmp_path, 2, "fail")
    assert first != 0
    assert second != 0
    assert "above max_tokens 0" in why
    assert "RanksDisagree: rank 0 failed: SampleUnusable" in heard


def test_ranks_that_are_at_other_steps_stop_before_anything_is_told(log: Log, tmp_path: Path) -> None:
    asyncio.run(log.write(*group("a"), *group("b")))
    ranks = job(log, tmp_path, 2, "disagree")
    for code, _, complaint in ranks:
        assert code != 0
        assert "rank 0 is at 1; rank 1 is at 77" in complaint
    assert asyncio.run(log.finals()) == []
