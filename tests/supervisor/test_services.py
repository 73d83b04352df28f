"""Which processes a live loop is made of (design/live-loop#run)."""

from __future__ import annotations

from typing import Any

import pytest

from rolloutlog.contract.errors import SettingsError
from rolloutlog.contract.settings import Settings
from rolloutlog.supervisor.services import services_of


def commands(to_step: int | None = None, **loop: Any) -> dict[str, str]:
    settings = Settings.model_validate({"loop": {"environments": ["reversal"], **loop}})
    return {one.name: " ".join(one.command[3:]) for one in services_of(settings, ["--config", "a.toml"], to_step)}


def test_a_loop_is_a_trainer_a_buffer_a_worker_and_a_feeder_for_each_environment() -> None:
    assert commands(environments=["reversal", "lookup"], workers=2, concurrency=8) == {
        "trainer": "train run --config a.toml",
        "buffer-0": "buffer run --config a.toml",
        "worker-0": "worker run --name worker-0 --concurrency 8 --environment reversal --environment lookup --engine "
        "torch --config a.toml",
        "worker-1": "worker run --name worker-1 --concurrency 8 --environment reversal --environment lookup --engine "
        "torch --config a.toml",
        "feeder-0": "feed --environment reversal --seed 0 --share 0.5 --config a.toml",
        "feeder-1": "feed --environment lookup --seed 0 --share 0.5 --config a.toml",
    }


def test_what_a_loop_says_its_services_are_given() -> None:
    made = commands(7, engine="none", tasks={"reversal": "words.jsonl"}, epochs=3, eval_every=5, seed=9, buffers=2)
    assert made["trainer"] == "train run --to-step 7 --short-after 10 --config a.toml"
    assert "--engine" not in made["worker-0"]
    assert made["feeder-0"] == (
        "feed --environment reversal --seed 9 --tasks words.jsonl --epochs 3 --eval-every 5 --eval-tasks 32 "
        "--config a.toml"
    )
    assert "buffer-1" in made


@pytest.mark.parametrize(
    ("loop", "said"),
    [
        ({"environments": []}, "names none"),
        ({"environments": ["a", "a"]}, "one twice"),
        ({"tasks": {"other": "file"}}, "a file for other"),
        ({"engine": "openai", "workers": 2}, "the one server of worker.engine"),
    ],
    ids=["none", "twice", "strange-file", "one-server"],
)
def test_what_cant_work_is_refused(loop: dict[str, Any], said: str) -> None:
    with pytest.raises(SettingsError, match=said):
        commands(**loop)
