"""How groups are shown: members alike on one line, and a summary where there are too many."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from rolloutlog.cli.groups import print_groups, print_streamed


def member(number: int, reward: float | None = 1.0, **facts: Any) -> dict[str, Any]:
    known: dict[str, Any] = {
        "rollout": f"g.{number}", "attempt": 1, "reward": reward, "status": "completed", "verdict": "fresh",
        "seq_staleness": 0, "response_tokens": 4, "trainable_tokens": 4, "mask_runs": [[0, 4]],
    }  # fmt: skip
    return known | facts


def group(name: str, *members: dict[str, Any], status: str = "ready", reason: str | None = None) -> dict[str, Any]:
    return {"group": name, "status": status, "reason": reason, "step": 3, "members": list(members)}


def printed(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return [line.rstrip() for line in capsys.readouterr().out.splitlines()]


def test_members_alike_stand_on_one_line_with_their_reward(capsys: pytest.CaptureFixture[str]) -> None:
    stale = member(3, verdict="partly", seq_staleness=2, trainable_tokens=2, mask_runs=[[0, 1], [3, 1]])
    print_groups([group("g", member(0), member(1, 0.5), member(2), stale)])
    assert printed(capsys) == [
        "group  status  step  members  reward  verdict   trained  mask",
        "g      ready      3  0,2           1  fresh     4/4",
        "                     1           0.5  fresh     4/4",
        "                     3             1  partly 2  2/4      0+1 3+1",
    ]


def test_a_member_without_a_verdict_says_how_it_stands(capsys: pytest.CaptureFixture[str]) -> None:
    gone: dict[str, Any] = {"verdict": None, "response_tokens": 0, "trainable_tokens": 0, "mask_runs": []}
    print_groups(
        [group("g", member(0), member(1, None, status="failed", **gone), status="dropped", reason="survivors")]
    )
    assert printed(capsys)[-1].split() == ["1", "failed"]


async def many() -> AsyncGenerator[dict[str, Any]]:
    for number in range(40):
        yield group(f"g{number}", member(0, 0.0), member(1), status="open" if number % 2 else "ready")
    yield group("z", member(0), member(1), status="dropped", reason="zero-variance")


def test_more_than_a_screenful_is_summed_up_by_status_and_reason(capsys: pytest.CaptureFixture[str]) -> None:
    asyncio.run(print_streamed(many(), as_json=False, at_most=24))
    assert printed(capsys) == [
        "status   reason         groups  members  reward  tokens  trained",
        "open                        20       40     0.5     160      160",
        "ready                       20       40     0.5     160      160",
        "dropped  zero-variance       1        2       1       8        8",
    ]
    asyncio.run(print_streamed(many(), as_json=False, at_most=None))
    assert len(printed(capsys)) == 1 + 2 * 40 + 1
