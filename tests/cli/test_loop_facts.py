"""What a live loop has done, told by headers, and how it is shown (design/live-loop#watching)."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from rolloutlog.cli.demonstration.live_demo import Target
from rolloutlog.cli.demonstration.loop_facts import LoopFacts
from rolloutlog.cli.demonstration.loop_screen import curve, loop_screen, masked_share, one_line
from rolloutlog.contract.events.event import Event, Outgoing, rollout_event
from rolloutlog.contract.events.group_events import GroupFinal, final_event
from rolloutlog.contract.events.seeds import Ask, Fresh, Seed, Source, seed_event
from rolloutlog.contract.record.rollout import Rollout
from rolloutlog.contract.vocabulary import DropReason, RunKind, SeedKind
from rolloutlog.contract.wire.headers import Headers

ENVS = frozenset({"reversal", "lookup"})
ROW: dict[str, Any] = {
    "step": 3, "reward": 0.5, "response_tokens": 100, "trainable_tokens": 90, "masked_share": 0.1,
    "staleness": {"0": 3, "2": 1}, "wait_s": 1.0, "train_s": 2.0, "tell_s": 1.0,
}  # fmt: skip


def event(made: Outgoing) -> Event:
    return Event(made.topic, 0, 0, 0, made.key, Headers(made.headers), made.value)


def seed(group: str, kind: str = SeedKind.FRESH, env: str = "reversal", **more: Any) -> Seed:
    return Seed(id=f"s-{group}", kind=kind, group=group, group_size=2, env=env, **more)


def round_of(number: int, env: str, step: int) -> Seed:
    fresh = Fresh(key="0", epoch=number)
    return seed(f"{env}-{number}", env=env, run_kind=RunKind.EVAL, fresh=fresh, dispatch_step=step)


def rollouts(of: Seed, *rewards: float, attempt: int = 1) -> list[Event]:
    made = [
        Rollout.flat(
            prompt_ids=[1], response_ids=[2], logprobs=[-0.5], versions=0, reward=reward, group=of.group,
            member=member, group_size=2, attempt=attempt,
            slot={"seed_kind": of.kind, "env": of.env, "kind": of.run_kind, "origin_seed": of.id, "origin_offset": 0},
        )
        for member, reward in enumerate(rewards)
    ]  # fmt: skip
    return [event(rollout_event(one, source="/test", now=1)) for one in made]


def asked(one: Seed) -> Event:
    return event(seed_event(one, source="/test", now=1))


def ended(group: str, reason: DropReason | None = None) -> Event:
    final = GroupFinal(group=group, group_size=2, timeline=0, step=1, reason=reason, as_of=1)
    return event(final_event(final, source="/test", now=1))


def log() -> list[Event]:
    fresh, again = seed("g"), seed("h")
    recheck, right = seed("r", SeedKind.RECHECK), seed("y", SeedKind.JUDGE, source=source(1.0))
    wrong = seed("n", SeedKind.JUDGE, source=source(0.5))
    evals = [round_of(number, env, 5 * number - 4) for number in (1, 2) for env in sorted(ENVS)]
    return [
        *map(asked, [fresh, again, recheck, right, wrong, *evals]),
        *rollouts(fresh, 0, 1), *rollouts(recheck, 0.5, 1), *rollouts(right, 1, 1), *rollouts(wrong, 0, 1),
        *(one for number, made in enumerate(evals) for one in rollouts(made, number / 4, number / 4)),
        ended("g"), ended("r", DropReason.ZERO_VARIANCE),
    ]  # fmt: skip


def source(reward: float) -> Source:
    return Source(rollout="x", attempt=1, handle="0/0/0", reward=reward)


def facts_of(events: list[Event]) -> LoopFacts:
    facts = LoopFacts(ENVS)
    for one in events:
        facts.take(one)
    return facts


@given(st.permutations(range(len(log()))))
def test_events_are_counted_in_any_order_and_once(order: list[int]) -> None:
    events = log()
    facts = facts_of([events[i] for i in order] + events)
    assert facts.seeds == {"fresh": 2, "recheck": 1, "judge": 2, "eval": 4}
    assert facts.ends == {"trained": 1, "zero-variance": 1}
    assert facts.open_groups == 3
    assert facts.rollouts == {"completed": 16}
    assert facts.repair_rate == 0.5
    assert facts.balanced_accuracy == 0.75
    assert [(one.step, one.means) for one in facts.whole_rounds] == [
        (0, {"lookup": 0.0, "reversal": 0.25}),
        (5, {"lookup": 0.5, "reversal": 0.75}),
    ]


def test_a_round_is_whole_when_every_environment_has_all_its_answers() -> None:
    one, other = round_of(1, "reversal", 1), round_of(1, "lookup", 1)
    events = [asked(one), *rollouts(one, 1, 1)]
    assert facts_of(events).whole_rounds == []
    assert facts_of([*events, asked(other), *rollouts(other, 1)]).whole_rounds == []
    assert len(facts_of([*events, asked(other), *rollouts(other, 1, 0)]).whole_rounds) == 1


def test_a_member_of_a_round_that_is_asked_again_counts_once_and_in_its_round() -> None:
    """As after a worker was killed: its seed has no place among the tasks."""
    first, other = (round_of(1, env, 6) for env in sorted(ENVS))
    again = seed(
        first.group,
        SeedKind.REROLL,
        first.env,
        run_kind=RunKind.EVAL,
        dispatch_step=9,
        asks=(Ask(member=0, attempt=2),),
    )
    events = [asked(first), asked(other), *rollouts(other, 1, 1), asked(again), *rollouts(first, 0)]
    assert facts_of([*events, *rollouts(first, 0.5, attempt=2)]).whole_rounds == [], "the same member twice"
    (one,) = facts_of([*events, *rollouts(first, 0, 0.5, attempt=2)]).whole_rounds
    assert (one.step, one.means) == (5, {first.env: 0.25, other.env: 1.0})


@pytest.mark.parametrize(
    ("target", "reward", "step", "seconds", "reached"),
    [
        (Target(), 1.0, 6, 5, True),
        (Target(), 0.9, 6, 5, False),
        (Target(steps=5), 0.1, 6, 5, True),
        (Target(steps=7), 0.1, 6, 5, False),
        (Target(steps=6), 0.1, 6, 5, False),
        (Target(seconds=5), 0.1, 6, 5, True),
    ],
    ids=["learned", "nearly", "steps", "steps-left", "not-told", "time"],
)
def test_a_demo_ends_when_it_has_learned_or_its_steps_are_told(
    target: Target, reward: float, step: int, seconds: float, reached: bool
) -> None:
    made = [round_of(2, env, 6) for env in sorted(ENVS)]
    facts = facts_of([*map(asked, made), *(each for one in made for each in rollouts(one, reward, reward))])
    assert target.is_reached(facts, [ROW | {"step": step}], seconds) is reached


def test_the_screen_says_what_there_is_and_a_dash_for_what_isnt() -> None:
    def text(facts: LoopFacts, rows: list[dict[str, Any]]) -> str:
        console = Console(file=(out := io.StringIO()), width=100)
        console.print(loop_screen(facts, rows, 12.0))
        return out.getvalue()

    shown = text(facts_of(log()), [ROW])
    for said in (
        "train step 3, 12 s",
        "0.75",
        "1 trained, 1 zero-variance; 3 open",
        "0: 75%, 2: 25%",
        "10.0% in all",
        "25% of",
    ):
        assert said in shown
    assert sum(line.split()[-1:] == ["-"] for line in text(LoopFacts(ENVS), []).splitlines()) >= 7
    assert (
        one_line(facts_of(log()), [ROW], 9) == "9 s, step 3: held-out reward lookup 0.50, reversal 0.75; 10.0% masked"
    )
    assert one_line(LoopFacts(ENVS), [], 9) == "9 s, no train step yet"


def test_a_curve_has_a_bar_a_value() -> None:
    assert curve([0, 0.5, 1, 2, -1]) == " ▄██ "
    assert len(curve([1.0] * 100, 7)) == 7
    assert masked_share([]) == 0


def test_the_plot_is_a_picture(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    from rolloutlog.cli.demonstration.loop_plot import plot_loop

    path = plot_loop(facts_of(log()), [ROW, ROW | {"step": 4}], tmp_path / "new" / "curves.png")
    assert path.read_bytes().startswith(b"\x89PNG")
