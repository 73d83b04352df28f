"""`broker logs`: the ends of logs, and how they go on."""

from __future__ import annotations

from pathlib import Path

from rolloutlog.broker.process.log_tail import read


def test_the_last_lines_of_each_log(tmp_path: Path) -> None:
    logs = [tmp_path / "node-1", tmp_path / "node-2"]
    for log in logs:
        log.write_text("a\nb\nc\n")
    assert list(read(logs, last=2)) == [(log, line) for log in logs for line in "bc"]
    assert [line for _, line in read(logs[:1])] == ["a", "b", "c"]


def test_a_log_is_followed_into_the_one_that_replaces_it(tmp_path: Path) -> None:
    """Every start of the broker begins a new log, and so do every 10 MB."""
    log = tmp_path / "server.log"
    log.write_text("old\nlast\n")
    lines = read([log], last=1, follow=True)
    assert next(lines) == (log, "last")

    with log.open("a") as file:
        file.write("added\n")
    assert next(lines) == (log, "added")

    log.rename(tmp_path / "server.log.1")
    log.write_text("of the next start\n")
    assert next(lines) == (log, "of the next start")
