"""A wait that speaks (design/exactly-once#waiting)."""

from __future__ import annotations

import time

from rolloutlog.kafka.client.logged_wait import LoggedWait


def waited(wait: LoggedWait, seconds: float) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        wait.goes_on("no seed")
        time.sleep(0.01)


def test_it_says_a_line_when_it_begins_one_now_and_then_and_one_when_it_is_over() -> None:
    said = list[str]()
    wait = LoggedWait(said.append, every_s=0.2)
    waited(wait, 0.5)
    wait.over("a seed came")
    assert said[0] == "waiting: no seed"
    assert said[1].startswith("still waiting after 0 s: no seed")
    assert said[-1].startswith("a seed came after")
    assert 3 <= len(said) <= 4


def test_a_short_wait_says_nothing() -> None:
    said = list[str]()
    wait = LoggedWait(said.append, after_s=10.0)
    for _ in range(3):
        waited(wait, 0.02)
        wait.over("a seed came")
    assert not said


def test_a_wait_of_another_kind_is_said_at_once_and_alternating_ones_seldom() -> None:
    said = list[str]()
    wait = LoggedWait(said.append, after_s=0.2)
    end = time.monotonic() + 0.5
    while time.monotonic() < end:
        wait.goes_on("no room", kind="room")
    wait.goes_on("no task", kind="task")
    assert [line.rpartition(": ")[2] for line in said] == ["no room", "no task"]
    for _ in range(10):
        wait.goes_on("no room", kind="room")
        wait.goes_on("no task", kind="task")
    assert len(said) == 2
