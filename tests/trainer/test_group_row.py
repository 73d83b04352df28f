"""A line of `groups --json` (design/trainer#view)."""

from __future__ import annotations

from typing import Any

import orjson

from rolloutlog.contract.settings import TrainerSettings
from rolloutlog.contract.vocabulary import Status
from rolloutlog.trainer.dispatch.decision import DispatchPolicy, Ready
from rolloutlog.trainer.dispatch.finals import final_of
from rolloutlog.trainer.dispatch.group_row import group_row
from tests.trainer.desk import Desk, ended, live, rollout, staleness

MASKED = staleness(max_staleness=3, max_token_staleness=1, on_expire="drop-group")


def row(desk: Desk, step: int | None = 5, **settings: Any) -> dict[str, Any]:
    dispatch = DispatchPolicy(TrainerSettings.model_validate(settings), live())
    return orjson.loads(orjson.dumps(group_row(desk.pending(), dispatch, step, desk.assembly.time.now, None)))


def test_a_group_that_is_ready_shows_verdicts_and_the_runs_of_trained_tokens() -> None:
    desk = Desk()
    desk.say(rollout(0, [4, 4]), rollout(1, [2, 4, 4, 2, 4]))
    assert row(desk, **MASKED) == {
        "group": "g", "status": "ready", "reason": None, "step": 5,
        "members": [
            {
                "rollout": "g.0", "attempt": 1, "reward": 0.0,
                "status": "completed", "verdict": "fresh", "seq_staleness": 0,
                "response_tokens": 2, "trainable_tokens": 2, "mask_runs": [[0, 2]],
            },
            {
                "rollout": "g.1", "attempt": 1, "reward": 1.0,
                "status": "completed", "verdict": "partly", "seq_staleness": 2,
                "response_tokens": 5, "trainable_tokens": 3, "mask_runs": [[1, 2], [4, 1]],
            },
        ],
    }  # fmt: skip


def test_an_open_group_shows_what_is_there() -> None:
    desk = Desk()
    desk.say(rollout(0, size=3), ended(rollout(1, size=3), Status.ABORTED))
    found = row(desk)
    assert (found["status"], found["reason"]) == ("open", None)
    assert [(m["status"], m["verdict"], m["attempt"]) for m in found["members"]] == [
        ("completed", "fresh", 1),
        ("aborted", None, 1),
        ("open", None, None),
    ]


def test_held_expired_and_dropped_groups_say_why() -> None:
    desk = Desk()
    desk.say(rollout(0, 4), rollout(1, 6))
    assert (row(desk)["status"], row(desk)["reason"]) == ("held", "until step 7")
    assert (row(desk, 9)["status"], row(desk, 9)["reason"]) == ("open", "expired")
    dropped = row(desk, 9, **staleness(on_expire="drop-group"))
    assert (dropped["status"], dropped["reason"]) == ("dropped", "expired")
    assert [m["verdict"] for m in dropped["members"]] == ["expired", "expired"]


def test_surplus_members_are_named() -> None:
    desk = Desk()
    desk.say(*(rollout(i, size=3, group_train=2) for i in range(3)))
    assert [m["verdict"] for m in row(desk)["members"]] == ["fresh", "fresh", "surplus"]


def test_an_ended_group_is_shown_as_it_was_drawn() -> None:
    """Whatever step is asked for now: the final event has the step, and its masks can be made again
    (decisions/staleness#66)."""
    desk = Desk()
    desk.say(rollout(0, [4, 4]), rollout(1, [2, 4, 4, 2, 4]))
    decision = desk.decide(5, **MASKED)
    assert isinstance(decision, Ready)
    final = final_of(desk.pending(), decision.verdict, timeline=0, as_of=2, settings="")
    dispatch = DispatchPolicy(TrainerSettings.model_validate(MASKED), live())
    found = group_row(desk.pending(), dispatch, 19, desk.assembly.time.now, final)
    assert (found["status"], found["step"]) == ("trained", 5)
    assert [m["mask_runs"] for m in found["members"]] == [[[0, 2]], [[1, 2], [4, 1]]]
