"""Decisions against the page, written down once more and plainly (design/trainer#settling, #on-expire, #stragglers)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from rolloutlog.contract.settings import TrainerSettings
from rolloutlog.contract.vocabulary import Status
from rolloutlog.trainer.dispatch.decision import Decision, DispatchPolicy, Drop, Held, Ready, Reroll, Waiting
from tests.trainer.desk import SEED, Desk, ended, live, pending_reward, rollout

STEP, SIZE = 5, 4


@dataclass(frozen=True)
class Slot:
    """What came of one member: `state`, sampled by `version`, after it had expired `tries` times."""

    state: str
    version: int
    reward: float
    tries: int
    cancelled: bool


slots = st.builds(
    Slot,
    st.sampled_from(["completed"] * 4 + ["open", "pending", "aborted", "failed"]),
    st.sampled_from([0, 2, 3, 4, 4, 4, 6]),
    st.sampled_from([0.0, 1.0, 1.0]),
    st.sampled_from([0, 0, 0, 1, 2]),
    st.sampled_from([False] * 5 + [True]),
)
expiries = st.sampled_from([
    "reroll-members", "reroll-group", "drop-members", "drop-group", "keep-as-baseline",
    {"type": "reroll-members", "tries": 1}, {"type": "reroll-group", "tries": 2},
])  # fmt: skip
stragglers = st.sampled_from([
    {"type": "wait"}, {"type": "deadline", "seconds": 10, "k": 2}, {"type": "over-provision", "group_train": 2},
])  # fmt: skip


@given(
    st.lists(slots, min_size=SIZE, max_size=SIZE),
    st.integers(2, SIZE),
    st.permutations(range(SIZE)),
    st.fixed_dictionaries(
        {
            "staleness": st.fixed_dictionaries({"max_staleness": st.integers(0, 2), "on_expire": expiries}),
            "straggler": stragglers,
            "min_survivors": st.integers(1, 2),
            "drop_zero_variance": st.booleans(),
        }
    ),
    st.booleans(),
    st.booleans(),
    st.booleans(),
)
def test_every_decision_is_what_the_page_says(
    members: list[Slot],
    needed: int,
    order: list[int],
    chosen: dict[str, Any],
    seeded: bool,
    late: bool,
    closed: bool,
) -> None:
    desk = Desk()
    desk.say(rollout(0, group="before", size=SIZE))
    for index in order:
        come(desk, index, members[index], needed, seeded)
    desk.now += 60_000 if late else 0
    desk.say(rollout(0, group="after", size=SIZE))
    settings = TrainerSettings.model_validate(chosen)
    if "g" not in desk.assembly.groups:
        return
    desk.pending().closed = closed
    decision = DispatchPolicy(settings, live()).decide(desk.pending(), STEP, desk.assembly.time.now)
    complete = [i for i in order if members[i].state == "completed"]
    assert told(decision) == expected(members, complete, needed, chosen, seeded, late, closed)


def come(desk: Desk, index: int, member: Slot, needed: int, seeded: bool) -> None:
    facts: dict[str, Any] = {"size": SIZE, "group_train": needed, "seed": SEED if seeded else None}
    for attempt in range(1, member.tries + 1):
        desk.say(rollout(index, 0, attempt=attempt, **facts))
        desk.pending().expire(index, attempt, desk.now)
    made = rollout(index, member.version, reward=member.reward, attempt=member.tries + 1, **facts)
    match member.state:
        case "completed":
            desk.say(made)
        case "pending":
            desk.say(pending_reward(made))
        case "aborted" | "failed":
            desk.say(ended(made, Status(member.state)))
        case _:
            pass
    if member.cancelled:
        desk.cancel([index], size=SIZE)


def told(decision: Decision) -> tuple[Any, ...]:
    match decision:
        case Waiting():
            return ("waiting",)
        case Reroll(_, again):
            return ("reroll", [m.member for m in again])
        case Drop(_, reason):
            return ("drop", str(reason))
        case Held(verdict, until):
            return ("held", [m.member for m in verdict.members], until)
        case Ready(verdict):
            return ("ready", [m.member for m in verdict.members])


def expected(
    members: list[Slot],
    complete: list[int],
    needed: int,
    chosen: dict[str, Any],
    seeded: bool,
    late: bool,
    closed: bool,
) -> tuple[Any, ...]:
    said: Any = chosen["staleness"]["on_expire"]
    expiry, tries = (said, None) if isinstance(said, str) else (said["type"], said["tries"])
    stale = [i for i in complete if STEP - members[i].version - 1 > chosen["staleness"]["max_staleness"]]
    fresh = [i for i in complete if i not in stale]
    suffice = keep = needed
    if chosen["straggler"]["type"] == "deadline" and late:
        suffice = min(2, needed)
    if chosen["straggler"]["type"] == "over-provision":
        suffice = keep = min(2, needed)
    ends = all(m.state in ("completed", "failed") or (m.cancelled and m.state != "pending") for m in members)
    if len(fresh) < suffice and not (ends or closed or len(complete) >= needed):
        return ("waiting",)
    asks = expiry.startswith("reroll")
    if len(fresh) < suffice and stale:
        if expiry == "drop-group":
            return ("drop", "expired")
        asked = [
            i
            for i in (complete if expiry == "reroll-group" else stale)
            if not members[i].cancelled and (tries is None or members[i].tries < tries)
        ]
        if asks and seeded and not closed and asked and len(complete) - len(asked) < needed:
            return ("reroll", asked)
    baseline = stale if expiry == "keep-as-baseline" else []
    kept = [*fresh, *baseline][:keep]
    kept = [i for i in complete if i in kept]
    if len(kept) < chosen["min_survivors"]:
        left_out = stale and expiry != "keep-as-baseline"
        return ("drop", ("no-seed" if asks and not seeded else "expired") if left_out else "survivors")
    if not any(i in fresh for i in kept):
        return ("drop", "no-token")
    if chosen["drop_zero_variance"] and len(kept) > 1 and len({members[i].reward for i in kept}) == 1:
        return ("drop", "zero-variance")
    newest = max(members[i].version for i in kept)
    return ("held", kept, newest + 1) if newest >= STEP else ("ready", kept)
