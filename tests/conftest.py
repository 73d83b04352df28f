"""What holds for every test: a marker that says what it needs, and hypothesis without surprises.

Guarantees: a test without a marker of its own is `pure`; hypothesis draws the same examples on every run of CI.
Leaves out: fixtures, which stand beside the tests that use them (the broker's, `kafka_broker`, comes with the
package, as a pytest plugin).
"""

from __future__ import annotations

import os
import signal

import pytest
from hypothesis import settings

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # in the background of a script Ctrl-C is ignored, which children inherit; tests of it need it
    signal.signal(signal.SIGINT, signal.default_int_handler)

NEEDS = ("pure", "broker", "chaos", "containers")

settings.register_profile("ci", deadline=None, derandomize=True, print_blob=True, max_examples=40)
settings.register_profile("dev", deadline=None, max_examples=40)
settings.register_profile("thorough", deadline=None, max_examples=1000)
settings.load_profile("ci" if os.environ.get("CI") else "dev")


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """What runs `async def test_...`."""
    return "asyncio"


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark as pure what names nothing that it needs, before pytest selects by marker."""
    for item in items:
        if not any(item.get_closest_marker(name) for name in NEEDS):
            item.add_marker("pure")
