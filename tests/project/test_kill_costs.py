"""What the bench that kills parts of a live loop says that each costs, and that its changes fit the settings."""

from __future__ import annotations

import pytest

pytest.importorskip("bench", reason="an installed package has no benches")
pytest.importorskip("torch")

from bench.faults import CHANGES, STILL
from bench.learning.kill_costs import away, lost_seconds, stood
from bench.learning.log_arms import replaced
from bench.learning.recoveries import WRITTEN, role_of
from rolloutlog.cli.demonstration.live_demo import SETTINGS
from rolloutlog.supervisor.services import ServiceRole

STEPS = [0.0, 2.0, 4.0, 6.0, 16.0, 18.0, 20.0, 22.0, 24.0, 30.0]
"""Two seconds each, but for eight after the first kill and four after the second."""
KILLS = [(6.5, "trainer"), (23.0, "worker-0"), (30.0, "broker")]


def test_a_kill_costs_the_steps_that_weren_t_made_until_the_next_one() -> None:
    assert lost_seconds(STEPS, KILLS) == {"trainer": [8.5], "worker": [3.0]}


def test_a_pause_is_of_the_kill_that_it_overlaps() -> None:
    assert stood(STEPS, KILLS) == {"trainer": [10.0], "worker": [6.0], "broker": [0.0]}


def test_what_came_back_is_told_by_role_and_what_didnt_as_well() -> None:
    assert away([("worker-0", 1.26), ("worker-1", None), ("broker", 4.0)]) == {"worker": [1.3, None], "broker": [4.0]}


def test_every_part_of_the_demos_loop_is_known_by_what_it_writes_and_its_settings_can_be_changed() -> None:
    assert WRITTEN.keys() == {role_of("broker"), *(role.name.lower() for role in ServiceRole)}
    assert replaced(SETTINGS.read_text("utf-8"), CHANGES | STILL).count("lr = 1e-12") == 1
