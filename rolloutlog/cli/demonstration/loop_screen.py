"""A live loop as a screen of text: curves, outcomes, staleness, seeds and what derived rollouts came to.

Guarantees: pure; every figure is one of the log or of the trainer's rows; what isn't known yet is a dash. Leaves out:
reading (`loop_follower`), and drawing again (`live_demo`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from rolloutlog.cli.demonstration.loop_facts import LoopFacts
from rolloutlog.cli.screen.output import counted

BARS = " ▁▂▃▄▅▆▇█"
WIDTH = 48
"""Characters of a curve."""
RECENT = 10
"""Steps over which the trainer's figures are taken."""
NOTHING = "-"


def loop_screen(facts: LoopFacts, rows: Sequence[Mapping[str, Any]], seconds: float) -> RenderableType:
    """The whole screen."""
    table = Table.grid(padding=(0, 2))
    for name, value in _lines(facts, rows):
        table.add_row(Text(name, style="dim"), value)
    step = rows[-1]["step"] if rows else 0
    title = Text.assemble(("rolloutlog", "bold"), f"  train step {step}, {seconds:.0f} s")
    return Group(title, Text(""), table)


def one_line(facts: LoopFacts, rows: Sequence[Mapping[str, Any]], seconds: float) -> str:
    """The same for a pipe."""
    if not rows:
        return f"{seconds:.0f} s, no train step yet"
    rounds = facts.whole_rounds
    held_out = ", ".join(f"{env} {mean:.2f}" for env, mean in rounds[-1].means.items()) if rounds else NOTHING
    return f"{seconds:.0f} s, step {rows[-1]['step']}: held-out reward {held_out}; {masked_share(rows):.1%} masked"


def masked_share(rows: Sequence[Mapping[str, Any]]) -> float:
    """Sampled tokens of trained groups that were left out of the loss."""
    sampled = sum(row["response_tokens"] for row in rows)
    return 1 - sum(row["trainable_tokens"] for row in rows) / sampled if sampled else 0.0


def curve(values: Sequence[float], width: int = WIDTH) -> str:
    """Values from 0 to 1 as bars; the newest `width` of them."""
    tops = (min(max(value, 0.0), 1.0) * (len(BARS) - 1) for value in values[-width:])
    return "".join(BARS[round(top)] for top in tops)


def _lines(facts: LoopFacts, rows: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, RenderableType]]:
    for env in sorted(facts.environments):
        known = [one.means[env] for one in facts.whole_rounds]
        yield f"{env}, held out", _reward(known)
    yield "in training", _reward([row["reward"] for row in rows if row["reward"] is not None])
    yield "", Text("")
    recent = rows[-RECENT:]
    yield "groups", Text(f"{counted(facts.ends)}; {facts.open_groups} open")
    yield "seeds", Text(counted(facts.seeds))
    yield "staleness", Text(_staleness(recent))
    share = f"{masked_share(recent):.1%} lately, {masked_share(rows):.1%} in all" if rows else NOTHING
    yield "tokens masked", Text(share)
    yield "recheck repairs", Text(_percent(facts.repair_rate))
    yield "judge, balanced", Text(_percent(facts.balanced_accuracy))
    yield "trainer waits", Text(_waits(recent))


def _reward(values: Sequence[float]) -> Text:
    return Text.assemble((curve(values), "green"), f" {values[-1]:.2f}") if values else Text(NOTHING)


def _staleness(rows: Sequence[Mapping[str, Any]]) -> str:
    """Members by the age of their oldest token, in steps."""
    ages = Counter[str]()
    for row in rows:
        ages.update(row["staleness"])
    total = sum(ages.values())
    parts = (f"{age}: {ages[age] / total:.0%}" for age in sorted(ages, key=int))
    return f"{', '.join(parts)} of members, by steps" if total else NOTHING


def _waits(rows: Sequence[Mapping[str, Any]]) -> str:
    """How long the trainer waits for groups, of all its time."""
    waited, whole = (
        sum(row["wait_s"] for row in rows),
        sum(row["wait_s"] + row["train_s"] + row["tell_s"] for row in rows),
    )
    return f"{waited / whole:.0%} of its time" if whole else NOTHING


def _percent(share: float | None) -> str:
    return NOTHING if share is None else f"{share:.0%}"
