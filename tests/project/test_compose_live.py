"""The feeders and workers of compose.live.yaml are those that `rolloutlog run` starts by the demo's settings."""

from __future__ import annotations

import re
import tomllib
from itertools import pairwise
from pathlib import Path

import pytest

from rolloutlog.cli.demonstration.live_demo import SETTINGS
from rolloutlog.contract.settings import Settings
from rolloutlog.supervisor.services import ServiceRole, services_of

COMPOSE = Path(__file__).parents[2] / "compose.live.yaml"
pytestmark = pytest.mark.skipif(not COMPOSE.exists(), reason="an installed package has no compose files")
DEFAULT = "--seed=0"


def said(service: str) -> set[str]:
    """The flags of a service's command."""
    found = re.search(rf"^  {service}:.*?(?=^\S|^  \S|\Z)", COMPOSE.read_text(), re.MULTILINE | re.DOTALL)
    assert found is not None
    return set(re.findall(r"^      - (--\S+)$", found[0], re.MULTILINE))


def meant(role: ServiceRole) -> list[set[str]]:
    """Those that the demo's services of a role have."""
    settings = Settings.model_validate(tomllib.loads(SETTINGS.read_text()))
    services = [one.command for one in services_of(settings, [], None) if one.role == role]
    return [{f"{flag}={value}" for flag, value in pairwise(words) if flag.startswith("--")} for words in services]


@pytest.mark.parametrize(("number", "name"), [(0, "feeder-reversal"), (1, "feeder-lookup")])
def test_a_feeder_asks_what_the_demos_asks(number: int, name: str) -> None:
    assert said(name) == meant(ServiceRole.FEEDER)[number] - {DEFAULT}


def test_workers_have_the_demos_environments_and_engine() -> None:
    """How many members run at once is theirs, since there may be several."""
    own = {"--name", "--concurrency"}
    (worker,) = meant(ServiceRole.WORKER)
    assert {flag for flag in said("worker") ^ worker if flag.partition("=")[0] not in own} == set()
