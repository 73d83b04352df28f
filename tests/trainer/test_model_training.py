"""`train run` with a model: it learns, publishes, keeps its numbers, and stops before it says what is wrong
(design/live-loop#training)."""

from __future__ import annotations

import asyncio
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

pytest.importorskip("torch")

import torch

from rolloutlog.contract.errors import (
    RolloutlogError,
    SampleUnusable,
    SettingsError,
    TrainingDiverged,
    WeightsUnusable,
    WeightsUnwritten,
)
from rolloutlog.contract.events.policy_versions import PublishedPolicy
from rolloutlog.contract.policies import Policy
from rolloutlog.contract.record.rollout import Rollout
from rolloutlog.contract.settings import Settings
from rolloutlog.contract.topics import Topic
from rolloutlog.contract.vocabulary import DropReason, RunKind
from rolloutlog.kafka.read.policy_log import PolicyFold, read_policy_log
from rolloutlog.policy.weights import load_weights, policy_of, weights_in
from rolloutlog.trainer.loop.state_file import read_state
from rolloutlog.trainer.training.model_training import run_training
from rolloutlog.trainer.training.run_folder import RunFolder
from rolloutlog.trainer.training.training_report import TrainingReport
from tests.trainer.log import Log
from tests.trainer.test_offline import offline
from tests.trainer.training_run import IDS, PROMPT, SMALL, Table, chance_by, groups, training_settings

pytestmark = pytest.mark.broker


class Killed(Exception):
    """As a kill, it leaves a step told and nothing else done."""


def _die_at(step: int) -> Callable[[dict[str, Any]], None]:
    def on_row(row: dict[str, Any]) -> None:
        if row["step"] == step:
            raise Killed

    return on_row


async def trained(settings: Settings, steps: int | None, **how: Any) -> TrainingReport:
    return await asyncio.wait_for(run_training(settings, steps=steps, **how), 60)


async def published(log: Log) -> PolicyFold:
    return await read_policy_log(await log.at_rest(Topic.POLICY_VERSIONS))


async def weights_of(log: Log, policy: Policy) -> PublishedPolicy:
    return (await published(log)).publications[policy]


async def test_it_learns_and_publishes_its_weights_and_keeps_its_numbers(log: Log, tmp_path: Path) -> None:
    settings = training_settings(log.settings, tmp_path / "run", optimizer={"lr": 0.05})
    rows: list[dict[str, Any]] = []
    training = asyncio.create_task(trained(settings, 6, on_row=rows.append))
    await log.write(*groups(12))
    report = await training
    assert (report.steps, report.groups, report.policy) == (6, 12, "0:6")
    known = await published(log)
    assert known.history.published == {Policy(0, v) for v in range(7)}
    first, last = (known.publications[Policy(0, v)] for v in (0, 6))
    assert chance_by(last.uri, last.digest) > 1.5 * chance_by(first.uri, first.digest)
    assert RunFolder.of(settings).rows() == [*map(dict, rows)]
    assert [row["step"] for row in rows] == [1, 2, 3, 4, 5, 6]
    assert rows[0]["rewards"].keys() == {"good"}
    assert all(row["grad_norm"] > 0 and row["policy"] == [0, row["step"]] for row in rows)


async def test_a_train_step_may_have_several_optimiser_steps(log: Log, tmp_path: Path) -> None:
    """One of AdamW moves a weight by its rate at most."""
    steps = {"epochs": 3, "mini_batches": 2, "folder": str(tmp_path / "run")}
    settings = training_settings(log.settings, tmp_path / "run", training=steps)
    training = asyncio.create_task(trained(settings, 1))
    await log.write(*groups(2))
    await training
    known = await published(log)
    assert known.history.published == {Policy(0, 0), Policy(0, 1)}
    before, after = (load_weights(*_place(known.publications[Policy(0, v)])) for v in (0, 1))
    moved = max(float((after[name] - before[name]).abs().max()) for name in before)
    assert moved > 2 * settings.optimizer.lr


async def test_a_start_moves_the_weights_that_were_published(log: Log, tmp_path: Path) -> None:
    settings = training_settings(log.settings, tmp_path / "run", optimizer={"type": "sgd", "lr": 0.5})
    training = asyncio.create_task(trained(settings, 2))
    await log.write(*groups(8))
    await training
    report = await trained(settings, 2)
    assert (report.steps, report.policy) == (2, "1:4")
    known = (await published(log)).publications
    before, after = (load_weights(*_place(known[policy])) for policy in (Policy(0, 2), Policy(1, 3)))
    moved = max(float((after[name] - before[name]).abs().max()) for name in before)
    assert 0 < moved < 0.5  # one step away from the weights that were published, not from the model's first


async def test_a_trainer_that_ended_goes_on_from_the_checkpoint_of_its_last_step(log: Log, tmp_path: Path) -> None:
    settings = training_settings(log.settings, tmp_path / "run", training={"keep_checkpoints": 1})
    training = asyncio.create_task(trained(settings, 2))
    await log.write(*groups(8))
    await training
    assert (await trained(settings, 2)).policy == "1:4"
    (file,) = RunFolder.of(settings).checkpoints.iterdir()
    state = read_state(file)
    assert {float(one["step"]) for one in state["optimizer"]["state"].values()} == {4.0}
    weights = load_weights(*_place(await weights_of(log, Policy(1, 4))))
    assert all(torch.equal(weights[name], state["model"][name]) for name in weights)


async def test_a_trainer_that_died_goes_on_with_its_weights_and_the_optimiser_that_was_kept(
    log: Log, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    settings = training_settings(log.settings, tmp_path / "run")
    training = asyncio.create_task(trained(settings, 1))
    await log.write(*groups(8))
    await training
    killed = asyncio.create_task(trained(settings, None, on_row=_die_at(3)))
    with pytest.raises(Killed):
        await killed
    assert (await trained(settings, 1)).policy == "1:4"
    assert "after train step 3, with its weights, and the optimiser as it was after step 1" in caplog.text


async def test_going_back_to_a_policy_makes_void_what_came_after(log: Log, tmp_path: Path) -> None:
    settings = training_settings(log.settings, tmp_path / "run", trainer={"sync_period": 1})
    training = asyncio.create_task(trained(settings, 3))
    await log.write(*groups(6))
    await training
    report = await trained(settings, 1, resume=Policy(0, 1))
    assert report.policy == "1:2"
    assert sorted((final.timeline, final.step) for final in await log.finals())[-2:] == [(1, 2), (1, 2)]


async def test_a_policy_can_be_gone_back_to_whose_checkpoint_is_there_no_more(log: Log, tmp_path: Path) -> None:
    """Only the newest are kept; weights that were published are."""
    settings = training_settings(
        log.settings, tmp_path / "run", training={"checkpoint_steps": 1, "keep_checkpoints": 1}
    )
    training = asyncio.create_task(trained(settings, 3))
    await log.write(*groups(6))
    await training
    assert (await trained(settings, 1, resume=Policy(0, 1))).policy == "1:2"
    shutil.rmtree(RunFolder.of(settings).checkpoints)
    assert (await trained(settings, 1, resume=Policy(1, 2))).policy == "2:3"


async def test_evaluations_never_train_and_their_reward_is_in_the_row(log: Log, tmp_path: Path) -> None:
    settings = training_settings(log.settings, tmp_path / "run")
    rows: list[dict[str, Any]] = []
    evals = groups(2, first=90, kind=RunKind.EVAL, env="held-out")
    training = asyncio.create_task(trained(settings, 1, on_row=rows.append))
    await log.write(*evals, *groups(2))
    await training
    said = rows[0]["evals"]["held-out"]
    assert said["reward"] == pytest.approx(fmean(rollout.trajectory.reward or 0 for rollout in evals))
    assert (said["members"], said["policy"]) == (8, [0, 0])
    assert {final.group for final in await log.finals()} == {"group-0", "group-1"}


async def test_weights_go_out_every_sync_period_and_at_the_end(log: Log, tmp_path: Path) -> None:
    settings = training_settings(log.settings, tmp_path / "run", trainer={"sync_period": 2})
    training = asyncio.create_task(trained(settings, 3))
    await log.write(*groups(6))
    await training
    assert (await published(log)).history.published == {Policy(0, v) for v in (0, 2, 3)}


async def test_old_weights_go_and_a_trainer_goes_on_by_what_is_left(log: Log, tmp_path: Path) -> None:
    """The newest and those of checkpoints stay (design/live-loop#weights)."""
    own = {"folder": str(tmp_path), "keep_weights": 2, "checkpoint_steps": 3, "keep_checkpoints": 1}
    settings = training_settings(log.settings, tmp_path, training=own)
    training = asyncio.create_task(trained(settings, 5))
    await log.write(*groups(14))
    await training
    weights = tmp_path / "weights"
    assert [str(policy_of(uri)) for uri in weights_in(weights)] == ["0:4", "0:5"]
    await trained(settings, 2)
    assert [str(policy_of(uri)) for uri in weights_in(weights)] == ["1:6", "1:7"]
    with pytest.raises(WeightsUnusable, match="can't be read") as refused:
        await trained(settings, 1, resume=Policy(0, 1))
    assert "training.keep_weights" in refused.value.hint
    assert (await published(log)).history.timeline == 1


async def test_an_older_checkpoint_keeps_its_weights_over_a_start_so_that_workers_get_them_again(
    log: Log, tmp_path: Path
) -> None:
    """What is gone back to is published again by its own file."""
    own = {"folder": str(tmp_path), "keep_weights": 1, "checkpoint_steps": 2, "keep_checkpoints": 3}
    settings = training_settings(log.settings, tmp_path, training=own)
    training = asyncio.create_task(trained(settings, 4))
    await log.write(*groups(14))
    await training
    await trained(settings, 1)  # which saves one more
    assert [str(policy_of(uri)) for uri in weights_in(tmp_path / "weights")] == ["0:2", "0:4", "1:5"]
    await trained(settings, 1, resume=Policy(0, 2))
    load_weights(*_place(await weights_of(log, Policy(2, 2))))


async def test_a_module_of_ones_own_is_trained_by_its_path(log: Log, tmp_path: Path) -> None:
    own = {"type": "own", "path": "tests.trainer.training_run:Table", "arguments": {"size": IDS}}
    settings = training_settings(log.settings, tmp_path / "run").model_copy(update=_model(own))
    training = asyncio.create_task(trained(settings, 2))
    await log.write(*groups(4))
    await training
    found = await weights_of(log, Policy(0, 2))
    table = load_weights(*_place(found))["table"]
    assert table.shape == Table().table.shape
    assert bool(table.any())


@pytest.mark.parametrize(
    ("own", "said"),
    [
        ({"path": "tests.trainer.training_run:nothing"}, "no model: AttributeError"),
        ({"path": "nowhere.at_all:Model"}, "no model: ModuleNotFoundError"),
        ({"path": "tests.trainer.training_run:text"}, "makes a str"),
        ({"path": "tests.trainer.training_run:Table", "arguments": {"width": 3}}, "no model: TypeError"),
    ],
    ids=["attribute", "module", "text", "argument"],
)
async def test_what_makes_no_model_is_refused_before_anything_is_said(
    log: Log, tmp_path: Path, own: dict[str, Any], said: str
) -> None:
    settings = training_settings(log.settings, tmp_path / "run").model_copy(update=_model({"type": "own", **own}))
    with pytest.raises(SettingsError, match=said):
        await trained(settings, 1)
    assert not (await published(log)).history.started


async def _stopped_by(log: Log, settings: Settings, error: type[RolloutlogError]) -> RolloutlogError:
    """The error; nothing was published but the first weights, and the groups are still there to train."""
    training = asyncio.create_task(trained(settings, 1))
    await log.write(*groups(2))
    with pytest.raises(error) as raised:
        await training
    assert (await published(log)).history.published <= {Policy(0, 0)}
    assert await log.finals() == []
    return raised.value


async def test_a_group_that_the_model_cant_take_is_left_out_by_name(log: Log, tmp_path: Path) -> None:
    """Whichever way, and told once: the next start has others."""
    settings = training_settings(log.settings, tmp_path / "run", trainer={"batch_groups": 4})
    rows: list[dict[str, Any]] = []
    training = asyncio.create_task(trained(settings, 1, on_row=rows.append))
    bad = [_altered(1, ids=[99]), _altered(2, ids=[1] * 9), _altered(3, temperature=0.0)]
    await log.write(*groups(1), *(one for group in bad for one in group))
    await training
    finals = {final.group: final for final in await log.finals()}
    assert finals["group-0"].reason is None
    said = ("token 99 at position 2", "10 tokens, and the model has 8", "temperature 0")
    for number, why in enumerate(said, 1):
        assert finals[f"group-{number}"].reason is DropReason.UNUSABLE
        assert why in (finals[f"group-{number}"].detail or "")
    (row,) = rows
    assert (row["groups"], row["dropped"], row["kinds"]) == (1, {"unusable": 3}, {"none": 1})
    await log.write(*groups(4, first=40))
    assert (await trained(settings, 1)).groups == 4


async def test_a_batch_of_which_nothing_is_left_ends_it_until_told_otherwise(log: Log, tmp_path: Path) -> None:
    settings = training_settings(log.settings, tmp_path / "run", model={"context": 3})
    error = await _stopped_by(log, settings, SampleUnusable)
    assert "none of these 2 groups can be trained" in error.message
    assert error.exit_code == 2
    assert "raise `model.context`" in error.hint
    told = settings.model_copy(update={"training": settings.training.model_copy(update={"leave_out": "all"})})
    assert (await trained(told, 1)).groups == 0
    assert {final.reason for final in await log.finals()} == {DropReason.UNUSABLE}


async def test_another_model_is_refused_before_a_timeline_begins(log: Log, tmp_path: Path) -> None:
    """By a checkpoint and by published weights; more layers or wider ones."""
    settings = training_settings(log.settings, tmp_path / "run")
    training = asyncio.create_task(trained(settings, 1))
    await log.write(*groups(4))
    await training
    before = len(await log.read(Topic.POLICY_VERSIONS))
    for sizes in ({"layers": 2}, {"width": 8}):
        other = training_settings(log.settings, tmp_path / "run", model={**SMALL, **sizes})
        with pytest.raises(SettingsError, match=r"model of the checkpoint .* isn't like the one here"):
            await trained(other, 1)
        with pytest.raises(WeightsUnusable, match="weights of another model"):
            await trained(other, 1, resume=Policy(0, 0))
    assert len(await log.read(Topic.POLICY_VERSIONS)) == before
    assert (await trained(settings, 1)).policy == "1:2"


async def test_a_loss_that_is_no_number_stops_before_anything_is_published(log: Log, tmp_path: Path) -> None:
    broken = {"type": "own", "path": "tests.trainer.training_run:Table", "arguments": {"broken": True}}
    settings = training_settings(log.settings, tmp_path / "run")
    error = await _stopped_by(log, settings.model_copy(update=_model(broken)), TrainingDiverged)
    assert "train step 1: the loss is nan" in error.message
    assert RunFolder.of(settings).rows() == []
    report = await trained(settings.model_copy(update=_model({**broken, "arguments": {}})), 1)
    assert report.groups == 2


async def test_it_learns_offline_from_what_an_ended_run_has_recorded(log: Log, tmp_path: Path) -> None:
    """Several times through, in two lives; its weights are those of its own namespace."""
    await log.publish(Policy(0, 0))
    await log.write(*groups(6))
    mine = await offline(log, max_passes=3, staleness={"max_staleness": None})
    settings = training_settings(mine.settings, tmp_path / "run", optimizer={"lr": 0.05}, trainer={"max_passes": 3})
    assert [(await trained(settings, steps)).groups for steps in (4, None)] == [8, 10]
    known = await published(mine)
    first, last = (known.publications[policy] for policy in (Policy(0, 0), Policy(1, 9)))
    assert chance_by(last.uri, last.digest) > 1.5 * chance_by(first.uri, first.digest)
    assert Counter(final.pass_number for final in await mine.finals()) == {1: 6, 2: 6, 3: 6}
    assert (await published(log)).history.published == {Policy(0, 0)}


async def test_one_that_came_to_the_end_of_its_data_goes_on_with_its_optimiser(log: Log, tmp_path: Path) -> None:
    """No step knew that it was the last: what it left is told after it, weights off the sync period too."""
    await log.publish(Policy(0, 0))
    await log.write(*groups(6))
    mine = await offline(log, staleness={"max_staleness": None})
    known = await published(mine)
    for timeline, passes in enumerate((1, 2)):
        own = {"max_passes": passes, "sync_period": 2}
        settings = training_settings(mine.settings, tmp_path / "run", trainer=own)
        report = await trained(settings, None)
        last = Policy(timeline, 3 * passes)
        assert (report.steps, report.policy) == (3, str(last))
        known = await published(mine)
        state = read_state(RunFolder.of(settings).checkpoints / Path(known.checkpoints[last].uri).name)
        assert {float(one["step"]) for one in state["optimizer"]["state"].values()} == {3.0 * passes}
        weights = load_weights(*_place(known.publications[last]))
        assert all(torch.equal(weights[name], state["model"][name]) for name in weights)
    assert (await published(mine)).history.published == {Policy(0, v) for v in (0, 2, 3)} | {
        Policy(1, v) for v in (3, 4, 6)
    }


async def test_weights_that_cant_be_written_leave_the_step_untold(log: Log, tmp_path: Path) -> None:
    settings = training_settings(log.settings, tmp_path / "run")
    first = asyncio.create_task(trained(settings, 1))
    await log.write(*groups(2, first=10))
    await first
    (tmp_path / "full").touch()
    full = settings.training.model_copy(update={"weights": str(tmp_path / "full")})
    await log.write(*groups(2))
    with pytest.raises(WeightsUnwritten, match="policy 1:2 can't be written"):
        await trained(settings.model_copy(update={"training": full}), 1)
    assert len(await log.finals()) == 2
    assert (await trained(settings, 1)).policy == "2:2"


async def test_asked_to_stop_it_ends_after_the_step_that_it_is_at(log: Log, tmp_path: Path) -> None:
    settings, stop = training_settings(log.settings, tmp_path / "run"), asyncio.Event()
    loop = asyncio.get_running_loop()
    training = asyncio.create_task(
        trained(settings, None, stop=stop, on_row=lambda _: loop.call_soon_threadsafe(stop.set))
    )
    await log.write(*groups(2))
    assert (await training).steps == 1
    assert (await published(log)).checkpoints.keys() == {Policy(0, 1)}, "whether it was at a step or waited"
    await log.write(*groups(2, first=2))
    assert (await trained(settings, 1)).policy == "1:2"


def _altered(number: int, ids: list[int] | None = None, temperature: float = 1.0) -> list[Rollout]:
    """A group whose last member is another."""
    *others, last = groups(1, first=number)
    given = ids or [0]
    bad = Rollout.flat(
        prompt_ids=PROMPT, response_ids=given, logprobs=[-1.0] * len(given), versions=Policy(0, 0), reward=9.0,
        group=last.slot.group, member=last.slot.member, group_size=4, temperature=temperature,
    )  # fmt: skip
    return [*others, bad]


def _model(said: dict[str, Any]) -> dict[str, Any]:
    return {"model": Settings.model_validate({"model": said}).model}


def _place(found: PublishedPolicy) -> tuple[str, str | None]:
    assert found.uri is not None
    return found.uri, found.digest


torch.set_num_threads(1)
