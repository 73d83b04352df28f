"""What the benches change in the demo's settings is what they say that they change."""

from __future__ import annotations

import tomllib

import pytest

pytest.importorskip("torch")
pytest.importorskip("bench", reason="an installed package has no benches")

from bench.learning.log_arms import change_of, replaced
from bench.learning.one_process import Arm, arms
from bench.utilisation import covered, under_way
from rolloutlog.cli.demonstration.live_demo import SETTINGS
from rolloutlog.contract.settings import Settings

EVERY = {"continue": 0.2, "recheck": 0.15, "judge": 0.1}
"""Derivations of the demo; how often counts in one process alone."""


def changed(arm: Arm) -> Settings:
    return Settings.model_validate(tomllib.loads(change_of(arm, every=arms(EVERY)[0])(SETTINGS.read_text())))


def rates(settings: Settings) -> dict[str, float]:
    return {each.name: settings.buffer.ratio * (each.share or 0.0) for each in settings.buffer.derivations}


@pytest.mark.parametrize("arm", arms(EVERY), ids=lambda arm: arm.name)
def test_an_arm_over_the_log_lacks_one_thing_and_has_the_rest(arm: Arm) -> None:
    whole, own = changed(arms(EVERY)[0]), changed(arm)
    if arm.chances:
        left = {name: rate for name, rate in rates(whole).items() if name in arm.chances}
        assert rates(own) == pytest.approx(left, rel=1e-3)
    else:
        assert own.buffer.ratio == 0
    assert (own.trainer.staleness.max_token_staleness is None) == (not arm.masks)
    assert (own.trainer.max_open == own.trainer.batch_groups) == (arm.lag == 0)


def test_what_the_settings_dont_say_cant_be_changed() -> None:
    with pytest.raises(ValueError, match="isn't in the demo's settings"):
        replaced(SETTINGS.read_text(), {"max_open = 1\n": ""})


def test_time_is_covered_once_however_many_were_at_it() -> None:
    spans = [(0.0, 4.0), (1.0, 2.0), (3.0, 6.0), (8.0, 20.0)]
    assert covered(spans, (2.0, 10.0)) == 6.0
    assert under_way(spans, (2.0, 10.0)) == [(0.0, 1), (1.0, 2), (2.0, 1), (4.0, 0), (6.0, 1)]
