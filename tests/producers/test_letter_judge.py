"""*Letter judge*: one letter says whether a source was right (docs/derive-seeds.md)."""

from __future__ import annotations

import asyncio

import pytest

from rolloutlog.contract.events.seeds import Seed, Source
from rolloutlog.contract.settings import BufferSettings
from rolloutlog.producers.environments.letter_judge import LetterJudge
from rolloutlog.producers.workers.engine_answer import engine_answer
from tests.producers.scripted import TOKENIZER, Script
from tests.producers.test_conversation import TABLE, play

JUDGE = LetterJudge()


def seed(reward: float | None) -> Seed:
    made = play(Script("b", "hgfe"), "lookup", TABLE)
    (point,) = LetterJudge.anchors(made)
    assert JUDGE.takes(point)
    return Seed(
        id="5eed", kind="letter-judge", group="g", group_size=2, env="lookup", derivation="verdict",
        messages=JUDGE.prompt(made, point), budget=1,
        source=Source(rollout="r", attempt=1, handle="0/0", reward=reward),
    )  # fmt: skip


def test_it_asks_what_was_said_and_can_be_tokenised() -> None:
    (asked,) = seed(1.0).messages or []
    assert asked == {"role": "user", "content": "b=bhgfe=hgfe!"}
    assert TOKENIZER.render([asked])


@pytest.mark.parametrize(
    ("reward", "said", "score"),
    [(1.0, "a", 1), (1.0, "b", 0), (0.75, "b", 1), (0.75, "a", 0), (1.0, "c", 0), (None, "a", None)],
)
def test_the_letter_is_scored_by_the_sources_reward(reward: float | None, said: str, score: float | None) -> None:
    made = asyncio.run(engine_answer(seed(reward), Script(said)))
    assert JUDGE.score(seed(reward), made.record) == score


def test_an_answer_of_the_engine_alone_says_its_temperature() -> None:
    """Without it no loss can be made of it."""
    made = asyncio.run(engine_answer(seed(1.0), Script("a")))
    assert [node.get("temperature") for node in made.record["nodes"]] == [None, Script.temperature]


def test_settings_name_it_as_any_other() -> None:
    named = {"name": "verdict", "derive": {"type": "letter-judge", "mark": "?"}}
    (made,) = BufferSettings.model_validate({"derivations": [named]}).derivations
    assert isinstance(made.derive, LetterJudge)
