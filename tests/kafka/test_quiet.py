"""A client without a broker says so, and not ten times a second."""

from __future__ import annotations

import logging

import pytest

from rolloutlog.kafka.client.quiet import NORMAL, Repeats, quiet_clients


def test_a_repeated_message_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    logger = logging.getLogger("aiokafka.test-of-quiet")
    quiet_clients()
    quiet_clients()
    assert len([each for each in logger.filters if isinstance(each, Repeats)]) == 1
    for number in range(3):
        logger.error("Unable connect to node with id %s", number)
    logger.warning("something else")
    logger.warning(NORMAL[0], "group")
    logger.info("chatter")
    assert [record.getMessage() for record in caplog.records] == ["Unable connect to node with id 0", "something else"]
