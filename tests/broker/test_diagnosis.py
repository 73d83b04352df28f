"""Why a node died, in its own words or better ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from rolloutlog.broker.process.diagnosis import why
from rolloutlog.broker.process.node_folder import NodeFolder

LOGGED = "2026-08-01 10:00:00,000 {level} kafka.log.LogManager - {text}\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("java.io.IOException: No space left on device", "its disk is full"),
        ("java.net.BindException: Address already in use", "another program took its port"),
        ("Failed to acquire lock on file .lock in /x", "another Kafka process works on its data"),
        ("java.lang.OutOfMemoryError: Java heap space", "it ran out of memory"),
    ],
)
def test_a_known_cause_is_named(text: str, expected: str, tmp_path: Path) -> None:
    (tmp_path / "server.log").write_text(LOGGED.format(level="ERROR", text=text))
    assert expected in why(NodeFolder(tmp_path))


def test_an_unknown_cause_is_the_last_error_line(tmp_path: Path) -> None:
    lines = [("ERROR", "first"), ("ERROR", "the last one"), ("INFO", "shutting down")]
    (tmp_path / "server.log").write_text("".join(LOGGED.format(level=level, text=text) for level, text in lines))
    assert "the last one" in why(NodeFolder(tmp_path))


def test_a_jvm_that_doesn_t_start_speaks_on_its_output(tmp_path: Path) -> None:
    (tmp_path / "server.out").write_text("Error: Could not create the Java Virtual Machine.\n")
    assert why(NodeFolder(tmp_path)) == "it wrote 'Error: Could not create the Java Virtual Machine.'"


def test_a_killed_node_says_nothing(tmp_path: Path) -> None:
    assert why(NodeFolder(tmp_path)) == "it was killed, or said nothing"
