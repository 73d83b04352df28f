"""Tests of this folder need Docker; where there is none they are skipped, with the reason.

Guarantees: the check happens once a session, and only when such a test runs. Leaves out: what the tests start.
"""

from __future__ import annotations

import pytest

from tests.containers.docker_engine import why_not


@pytest.fixture(scope="session", autouse=True)
def engine() -> None:
    """A Docker engine with compose."""
    if (reason := why_not()) is not None:
        pytest.skip(reason)
