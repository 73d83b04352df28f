"""One secured cluster for all tests of this folder, with a user for each role and one for nobody."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from rolloutlog.contract.roles import Role
from tests.secured.cluster import SecuredKafka, password_of, start
from tests.secured.wire import make_users

NOBODY = "nobody"


@pytest.fixture(scope="session")
def secured() -> Iterator[SecuredKafka]:
    """The cluster; users have no rights yet."""
    cluster = start()
    try:
        asyncio.run(make_users(cluster.admin, {user: password_of(user) for user in (*Role, NOBODY)}))
        yield cluster
    finally:
        cluster.broker.close()
