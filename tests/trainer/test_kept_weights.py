"""Which published weights stay in their folder (design/live-loop#weights)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

import torch

from rolloutlog.contract.policies import History, Policy
from rolloutlog.contract.settings import Settings
from rolloutlog.policy.weights import load_weights, policy_of, save_weights, weights_in
from rolloutlog.trainer.training.kept_weights import KeptWeights


def settings(keep: int = 3, max_staleness: int | None = None, **training: Any) -> Settings:
    return Settings.model_validate({
        "training": {"keep_weights": keep, **training},
        "trainer": {"staleness": {"max_staleness": max_staleness}},
    })  # fmt: skip


def publish(kept: KeptWeights, folder: Path, *versions: int, timeline: int = 0) -> None:
    for version in versions:
        kept.wrote(save_weights(torch.nn.Linear(2, 1), folder, Policy(timeline, version)).uri)
        kept.published()


def left(folder: Path) -> list[str]:
    return [str(policy_of(uri)) for uri in weights_in(folder)]


def test_the_newest_stay_and_can_be_read(tmp_path: Path) -> None:
    kept = KeptWeights(settings())
    publish(kept, tmp_path, *range(12))
    assert left(tmp_path) == ["0:9", "0:10", "0:11"]
    assert load_weights(weights_in(tmp_path)[0], None).keys() == {"weight", "bias"}


def test_those_of_checkpoints_that_are_kept_stay(tmp_path: Path) -> None:
    kept = KeptWeights(settings(keep_checkpoints=2))
    for version in range(10):
        publish(kept, tmp_path, version)
        if version in (2, 4, 6):
            kept.saved(version)
    assert left(tmp_path) == ["0:4", "0:6", "0:7", "0:8", "0:9"]


def test_no_fewer_stay_than_a_worker_may_still_be_loading(tmp_path: Path) -> None:
    publish(KeptWeights(settings(1, max_staleness=4)), tmp_path, *range(10))
    assert left(tmp_path) == [f"0:{version}" for version in range(4, 10)]


def test_what_was_written_and_never_published_lets_nothing_go(tmp_path: Path) -> None:
    """Its step may fail, and then the older ones are what there is."""
    kept = KeptWeights(settings())
    publish(kept, tmp_path, 0, 1, 2)
    kept.wrote(save_weights(torch.nn.Linear(2, 1), tmp_path, Policy(0, 3)).uri)
    assert left(tmp_path) == ["0:0", "0:1", "0:2", "0:3"]


def places(folder: Path) -> dict[Policy, str]:
    """What a run published, of which all is in a folder."""
    return {policy: uri for uri in weights_in(folder) if (policy := policy_of(uri)) is not None}


def test_those_of_an_earlier_life_go_first_and_other_files_never(tmp_path: Path) -> None:
    publish(KeptWeights(settings(keep=10)), tmp_path, 7, 8, 9)
    (other := tmp_path / "best.safetensors").touch()
    (kept := KeptWeights(settings())).goes_on(weights_in(tmp_path), places(tmp_path), History(), [])
    publish(kept, tmp_path, 10, 11)
    assert left(tmp_path) == ["0:9", "0:10", "0:11"]
    assert other.exists()


def test_another_runs_weights_in_the_same_folder_are_left_alone(tmp_path: Path) -> None:
    publish(KeptWeights(settings(keep=10)), tmp_path, *range(4))
    (kept := KeptWeights(settings(keep=1))).goes_on(weights_in(tmp_path), {}, History(), [])
    publish(kept, tmp_path, *range(7, 12))
    assert left(tmp_path) == ["0:0", "0:1", "0:2", "0:3", "0:10", "0:11"]


def test_after_going_back_void_ones_go_before_those_that_were_gone_back_to(tmp_path: Path) -> None:
    """Workers may still be loading what the new timeline began with, which is an old file."""
    publish(KeptWeights(settings(keep=20)), tmp_path, *range(9))
    published = places(tmp_path)
    history = History(published=set(published))
    history.start(1, 0, 2)
    published[Policy(1, 2)] = published[Policy(0, 2)]
    (kept := KeptWeights(settings(keep=3))).goes_on(weights_in(tmp_path), published, history, [])
    publish(kept, tmp_path, 3, timeline=1)
    assert left(tmp_path) == ["0:1", "0:2", "1:3"]


def test_all_checkpoints_that_an_earlier_life_left_keep_their_weights(tmp_path: Path) -> None:
    publish(KeptWeights(settings(keep=20)), tmp_path, *range(9))
    (kept := KeptWeights(settings(keep=1, keep_checkpoints=2))).goes_on(
        weights_in(tmp_path), places(tmp_path), History(), [2, 4]
    )
    publish(kept, tmp_path, 9)
    assert left(tmp_path) == ["0:2", "0:4", "0:8", "0:9"]
    kept.saved(9)
    publish(kept, tmp_path, 10)
    assert left(tmp_path) == ["0:4", "0:9", "0:10"]


def test_a_store_that_keeps_them_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    kept = KeptWeights(settings(keep=1))
    for version in range(6):
        kept.wrote(f"nowhere://weights/policy-0-{version}-0123abcd.safetensors")
        kept.published()
    assert [record.getMessage().partition(":")[0] for record in caplog.records] == ["old weights stay"]
