"""The lock of the container image says the same as the lock that everything else is tested with."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
LOCKS = ROOT / "requirements"
EXTRAS = ("import", "s3")

pytestmark = pytest.mark.skipif(not LOCKS.is_dir(), reason="an installed wheel has no locks")


def pinned(lock: str) -> set[str]:
    """`name==version` of every line, without hashes and markers."""
    return set(re.findall(r"^[\w.-]+==[^\s;]+", (LOCKS / lock).read_text(), re.MULTILINE))


def test_the_image_has_what_the_core_and_its_extras_need() -> None:
    project: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [*project["dependencies"], *(line for extra in EXTRAS for line in project["optional-dependencies"][extra])]
    names = {re.split(r"[\[><=~!; ]", line)[0].lower() for line in wanted}
    assert names - {pin.partition("==")[0] for pin in pinned("services.txt")} == set(), "run `make lock`"


@pytest.mark.parametrize("lock", ["services.txt", "build.txt"])
def test_the_image_has_the_versions_that_are_tested(lock: str) -> None:
    assert pinned(lock) - pinned("dev.txt") == set(), "run `make lock`"
