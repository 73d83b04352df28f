"""Derived seeds are drawn again from rows of the index, and one that says otherwise is told (design/buffer#draws)."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rolloutlog.buffer.index.rows import Row, SeedRow
from rolloutlog.buffer.offline.redraw import FINDINGS, Finding, Redraw, Redrawn
from rolloutlog.buffer.shard.rendering import rendered
from rolloutlog.buffer.sources.candidates import Candidate
from rolloutlog.contract.events.event import Outgoing
from rolloutlog.contract.events.seeds import Seed, seed_event
from rolloutlog.contract.settings import Settings
from rolloutlog.contract.topics import Topic
from tests.buffer.events_by_hand import annotated, final, rollout
from tests.buffer.partition_log import NOW, Owner, PartitionLog, settings_of

RUN = settings_of(
    buffer={
        "capacity": 6,
        "keep": {"env_share": 0.7, "min_reward": 0.1},
        "derivations": [
            {
                "name": "continue",
                "derive": {"type": "continue", "anchor": "tool-call", "max_anchors": None},
                "select": {"max_source_reward": 0.9},
                "max_draws": 2,
            },
            {"name": "judge", "derive": {"type": "judge"}},
        ],
    }
)


def played(random: Random, steps: int, run: Settings = RUN) -> PartitionLog:
    """A log on which records, late rewards and ends arrive in any order, and owners come and go."""
    log, names = PartitionLog(run), [f"g{number}" for number in range(5)]
    owner = Owner(log)
    for _ in range(steps):
        log.append(*some(random, names))
        if random.random() < 0.2:
            owner = Owner(log)
        owner.settle() if random.random() < 0.3 else owner.flush()
        for topic in random.sample(list(owner.positions), 2):
            owner.read(topic, random.randrange(4))
    owner.settle()
    return log


def some(random: Random, names: list[str]) -> list[Outgoing]:
    name, member, attempt = random.choice(names), random.randrange(2), random.randrange(1, 3)
    made = (
        lambda: rollout(name, member, attempt, reward=random.choice([0.0, 0.5, 1.0]), turns=random.randrange(1, 3)),
        lambda: annotated(name, member, attempt, reward=random.choice([0.0, 0.5, 1.0])),
        lambda: final(name, random.randrange(20)),
    )
    return [random.choices(made, (6, 3, 1))[0]() for _ in range(random.randrange(4))]


def redrawn(log: PartitionLog, rows: list[Row], batch: int = 3) -> list[Redrawn]:
    redraw = Redraw.of(0, log.settings)
    found = [each for at in range(0, len(rows), batch) for each in redraw.read(rows[at : at + batch])]
    return found + list(redraw.end())


@given(st.randoms(use_true_random=False), st.integers(1, 30))
def test_every_seed_is_drawn_again_to_the_byte(random: Random, steps: int) -> None:
    """Over late rewards, draws in flight, new owners, limits and a balanced derivation; each is looked at once."""
    log = played(random, steps)
    found = redrawn(log, log.rows)
    assert [each.row.seed.id for each in found] == [seed.id for seed in log.seeds if seed.draw and not seed.asks]
    on_log = {seed.id: seed for seed in log.seeds}
    for each in found:
        assert (each.finding, each.drawn is None) == (Finding.EQUAL, False)
        assert each.drawn
        known = each.drawn.candidate
        candidate = Candidate(known.offset, known.derivation, known.point, each.drawn.earlier)
        trajectory = log.trajectory(each.drawn.source.row.handle(0))
        seed = rendered(each.drawn.source.facts, candidate, trajectory, each.drawn.draw, log.settings, 0)
        assert isinstance(seed, Seed)
        assert seed.encode() == on_log[each.row.seed.id].encode()


@given(st.randoms(use_true_random=False))
def test_the_order_of_topics_on_the_index_does_not_matter(random: Random) -> None:
    """As after `buffer reindex`, which folds one input after the other."""
    log = played(random, 15)
    seeds = [row for row in log.rows if isinstance(row, SeedRow)]
    others = [row for row in log.rows if not isinstance(row, SeedRow)]
    findings = [each.finding for each in redrawn(log, seeds + others)]
    assert set(findings) <= {Finding.EQUAL}
    assert len(findings) == sum(row.seed.draw is not None and not row.seed.asks for row in seeds)


def forged(**changes: Any) -> list[Finding]:
    """What is found where the last seed of a log says something else of its draw."""
    log = PartitionLog(settings_of())
    log.append(*[rollout(name, member) for name in "abcdef" for member in range(2)])
    owner = Owner(log)
    owner.settle()
    last = log.seeds[-1]
    assert last.draw
    facts = {"draw": last.draw.model_copy(update=changes)}
    event = log.topics[Topic.SEEDS].pop()
    assert event.headers.id == last.id
    log.topics[Topic.ROLLOUT_INDEX].clear()
    log.append(seed_event(last.model_copy(update=facts), source="/forged", now=NOW, partition=0))
    anew = Owner(log)
    anew.settle()
    return [each.finding for each in redrawn(log, log.rows)][: len(log.seeds)][-1:]


@pytest.mark.parametrize(
    ("changes", "finding"),
    [
        ({}, Finding.EQUAL),
        ({"number": 1000}, Finding.CANDIDATE),
        ({"rollouts": 2}, Finding.ORDER),
        ({"rollouts": 10**9}, Finding.ORDER),
        ({"seeds": 10**9}, Finding.ORDER),
        ({"settings": "others"}, Finding.SETTINGS),
    ],
)
def test_a_seed_that_says_something_else_of_its_draw_is_told(changes: dict[str, Any], finding: Finding) -> None:
    assert forged(**changes) == [finding]


def test_a_row_that_is_missing_gives_another_candidate() -> None:
    log = PartitionLog(settings_of())
    log.append(*[rollout(name, member) for name in "abcdef" for member in range(2)])
    Owner(log).settle()
    assert {each.finding for each in redrawn(log, log.rows[2:])} == {Finding.EQUAL, Finding.CANDIDATE}


def test_every_finding_has_a_sentence() -> None:
    assert FINDINGS.keys() == set(Finding)
