"""Conversations in task environments: who said what, resumed anywhere, by token ids (design/live-loop#conversation)."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from rolloutlog.buffer.derivations.continuation import Continue
from rolloutlog.contract.errors import InvalidRecord, SettingsError
from rolloutlog.contract.events.seeds import Ask, Seed
from rolloutlog.contract.events.validation import check_trajectory
from rolloutlog.contract.policies import Policy
from rolloutlog.contract.record.sample import Sample
from rolloutlog.contract.record.trajectory import Trajectory
from rolloutlog.producers.endings import with_facts
from rolloutlog.producers.environments.environment_table import EnvironmentTable, environments_of, installed_environment
from rolloutlog.producers.environments.letters import share_right
from rolloutlog.producers.environments.lookup import Lookup
from rolloutlog.producers.environments.recall import Recall
from rolloutlog.producers.environments.reversal import Reversal
from rolloutlog.producers.workers.engine_answer import engine_answer
from rolloutlog.producers.workers.environment import Dispatch, Paused
from rolloutlog.producers.workers.member_runner import _with_origin
from tests.producers.scripted import TOKENIZER, Script

ENVIRONMENTS = EnvironmentTable([Reversal(), Lookup(), Recall()])
WORD: dict[str, Any] = {"key": "1", "word": "abcd"}
TABLE: dict[str, Any] = {"key": "1", "letter": "b", "table": dict.fromkeys("acdefgh", "aaaa") | {"b": "hgfe"}}


def dispatch(env: str, task: dict[str, Any], *, prefix: Trajectory | None = None, **seed: Any) -> Dispatch:
    made = Seed(id="5eed", kind="fresh", group="g", group_size=2, env=env, task=task, **seed)
    ask = Ask(member=0, attempt=1 if prefix is None else 2)
    return Dispatch(made, ask, made.slot(ask, 0), None, prefix)


def play(engine: Script, env: str, task: dict[str, Any], **more: Any) -> Trajectory:
    made = asyncio.run(ENVIRONMENTS.rollout(dispatch(env, task, **more), engine))
    check_trajectory(made)
    return made


def pause(engine: Script, env: str, task: dict[str, Any], **more: Any) -> Trajectory:
    """What an aborted attempt hands over."""
    with pytest.raises(Paused) as paused:
        play(engine, env, task, **more)
    assert paused.value.prefix is not None
    check_trajectory(paused.value.prefix)
    return paused.value.prefix


def said(made: Trajectory) -> list[tuple[str, str]]:
    return [(message["role"], message["content"]) for message in made.messages if message is not None]


def ids_to(made: Trajectory, node: int) -> list[int]:
    """Token ids of the path up to a node, without it."""
    nodes, ids = made.as_nodes(), list[int]()
    at = nodes[node].parent
    while at != -1:
        ids[:0] = [int(token) for token in nodes[at].token_ids]
        at = nodes[at].parent
    return ids


def test_one_turn_is_a_prompt_and_a_sampled_answer() -> None:
    made = play(Script("dcbb"), "reversal", WORD)
    assert said(made) == [("user", "abcd="), ("assistant", "dcbb")]
    assert made.sampled_nodes == [False, True]
    assert made.reward == 0.75
    assert made.record["nodes"][1]["temperature"] == 0.5
    assert made.record["task"] == WORD


def test_a_tool_is_called_by_the_first_letter_and_answers() -> None:
    engine = Script("b", "hgfa")
    made = play(engine, "lookup", TABLE)
    assert said(made) == [("user", "b="), ("assistant", "b"), ("tool", "hgfe="), ("assistant", "hgfa")]
    [call] = made.record["nodes"][1]["message"]["tool_calls"]
    assert call["id"] == made.record["nodes"][2]["message"]["tool_call_id"]
    assert made.reward == 0.8, "four of five letters, the call's among them"
    assert [limit for _, limit in engine.asked] == [1, 4]
    assert [(anchor.kind, anchor.node) for anchor in Continue.anchors(made)] == [("tool-call", 2)]


def test_the_call_and_the_word_are_scored_apart() -> None:
    """Each has its part of the reward though the other is wrong (`lookup`)."""
    assert play(Script("b", "aaaa"), "lookup", TABLE).reward == 0.2
    assert play(Script("a", "hgfe"), "lookup", TABLE).reward == 0.8
    assert play(Script("", "hgfe"), "lookup", TABLE).reward == 0.8


def test_what_the_engine_is_given_are_the_ids_on_the_log() -> None:
    """Tokens, never text that is rendered again."""
    for env, task, answers in (("lookup", TABLE, ("b", "hgfe")), ("recall", WORD, ("abcd", "abcd"))):
        engine = Script(*answers)
        made = play(engine, env, task)
        sampled = [number for number, is_sampled in enumerate(made.sampled_nodes) if is_sampled]
        assert [ids for ids, _ in engine.asked] == [ids_to(made, number) for number in sampled]
    assert engine.asked[1][0] == TOKENIZER.render([{"role": "user", "content": "abcd?="}])


def test_a_compaction_begins_a_second_conversation_with_the_note() -> None:
    made = play(Script("abca", "abcd"), "recall", WORD)
    assert made.parents == [-1, 0, -1, 2]
    assert said(made) == [("user", "abcd!"), ("assistant", "abca"), ("user", "abca?="), ("assistant", "abcd")]
    assert made.reward == 1.0
    assert [(anchor.kind, anchor.node) for anchor in Continue.anchors(made)] == [("compaction", 2)]


@pytest.mark.parametrize("cut", range(4))
def test_an_answer_that_was_stopped_goes_on_where_it_was(cut: int) -> None:
    """With its log-probs, and a segment for each policy (decisions/staleness#27)."""
    prefix = pause(Script("dcba", stops={0: cut}), "reversal", WORD)
    engine = Script("dcba"[cut:])
    engine.policy = Policy(0, 3)
    made = play(engine, "reversal", WORD, prefix=prefix)
    assert said(made)[-1] == ("assistant", "dcba")
    assert made.segments.tolist() == ([[0, 0, 0]] if cut else []) + [[0, 3, cut]]
    assert made.logprobs.tolist() == [-i for i in range(1, cut + 1)] + [-i for i in range(1, 5 - cut)]
    assert engine.asked == [(ids_to(made, 1) + TOKENIZER.encode("dcba"[:cut]), 4 - cut)]
    assert "unfinished" not in made.record["nodes"][1]


@pytest.mark.parametrize("cut", range(4))
def test_a_record_says_what_it_was_resumed_from_only_if_it_carries_it(cut: int) -> None:
    """An environment that starts anew may; one that says it goes on with what it doesn't carry may not."""
    prefix = pause(Script("dcba", stops={0: cut}), "reversal", WORD)
    seed = Seed(
        id="5eed",
        kind="resume",
        group="g",
        group_size=2,
        env="reversal",
        asks=[Ask(member=0, attempt=2)],
        origin_seed="0",
        origin_offset=0,
        prefix="0/7/100",
    )
    carried = _with_origin(play(Script("dcba"[cut:]), "reversal", WORD, prefix=prefix), seed, prefix)
    assert carried.record["resumed_from"] == "0/7/100"
    other = play(Script("aaaa"), "reversal", WORD)
    anew = _with_origin(other, seed, prefix)
    assert ("resumed_from" in anew.record) == (cut == 0), "nothing was sampled, so nothing is missing"
    if cut:
        with pytest.raises(InvalidRecord, match="doesn't begin with"):
            _with_origin(with_facts(other, {"resumed_from": "0/7/100"}), seed, prefix)


def test_an_answer_may_be_stopped_twice_by_one_policy() -> None:
    first = pause(Script("dcba", stops={0: 1}), "reversal", WORD)
    second = pause(Script("cba", stops={0: 2}), "reversal", WORD, prefix=first)
    made = play(Script("a"), "reversal", WORD, prefix=second)
    assert said(made)[-1] == ("assistant", "dcba")
    assert made.segments.tolist() == [[0, 0, 0]]


def test_a_rollout_that_was_stopped_between_turns_goes_on_with_the_next() -> None:
    prefix = pause(Script("b", "", stops={1: 0}), "lookup", TABLE)
    engine = Script("hgfe")
    made = play(engine, "lookup", TABLE, prefix=prefix)
    assert said(made) == [("user", "b="), ("assistant", "b"), ("tool", "hgfe="), ("assistant", "hgfe")]
    assert made.reward == 1.0


@pytest.mark.parametrize(("env", "task", "answers"), [("reversal", WORD, ["dcba"]), ("lookup", TABLE, ["b", "hgfe"])])
def test_a_prefix_that_had_ended_is_completed_without_the_engine(
    env: str, task: dict[str, Any], answers: list[str]
) -> None:
    """As one with no budget left is (decisions/staleness#29)."""
    whole = play(Script(*answers), env, task)
    engine = Script()
    made = play(engine, env, task, prefix=whole)
    assert (made.reward, engine.asked) == (1.0, [])
    assert made.token_ids.tolist() == whole.token_ids.tolist()


def test_no_budget_completes_without_the_engine() -> None:
    prefix = pause(Script("dcba", stops={0: 2}), "reversal", WORD)
    engine = Script()
    made = play(engine, "reversal", WORD, prefix=prefix, budget=0)
    assert (made.reward, made.record["stop_condition"], engine.asked) == (0.5, "length", [])


def test_a_budget_bounds_the_new_tokens_alone() -> None:
    engine = Script("b", "hgfe")
    made = play(engine, "lookup", TABLE, budget=3)
    assert [limit for _, limit in engine.asked] == [1, 2]
    assert said(made)[-1] == ("assistant", "hg")
    assert (made.reward, made.record["stop_condition"]) == (0.6, "stop")


def test_it_goes_on_from_a_seeds_messages() -> None:
    """A check of an answer; the new one counts."""
    messages = [*Reversal().prompt(WORD), {"role": "assistant", "content": "aaaa"}, {"role": "user", "content": "?"}]
    made = play(Script("dcba"), "reversal", WORD, messages=messages)
    assert made.sampled_nodes == [False, False, False, True]
    assert made.reward == 1.0


class Stuck(Script):
    """Never answers the second time."""

    async def sample(self, prompt_ids: Any, *, max_tokens: int | None = None) -> Sample:
        if self.asked:
            await asyncio.Event().wait()
        return await super().sample(prompt_ids, max_tokens=max_tokens)


def test_cancelled_it_hands_over_what_it_has() -> None:
    async def run() -> Trajectory:
        work = asyncio.create_task(ENVIRONMENTS.rollout(dispatch("lookup", TABLE), Stuck("b")))
        await asyncio.sleep(0.05)
        work.cancel()
        with pytest.raises(Paused) as paused:
            await work
        assert paused.value.prefix is not None
        return paused.value.prefix

    prefix = asyncio.run(run())
    assert said(prefix) == [("user", "b="), ("assistant", "b"), ("tool", "hgfe=")]
    assert play(Script("hgfe"), "lookup", TABLE, prefix=prefix).reward == 1.0


def test_a_slow_tool_is_waited_for_and_what_was_said_is_handed_over_meanwhile() -> None:
    slow = Lookup(slow=1.0, most_s=100.0)
    assert 0 < slow.seconds(TABLE) == slow.seconds(TABLE) <= 100
    assert Lookup().seconds(TABLE) == 0

    async def stopped() -> Trajectory | None:
        engine = Script("b", "hgfe")
        work = asyncio.create_task(EnvironmentTable([slow]).rollout(dispatch("lookup", TABLE), engine))
        for _ in range(50):
            await asyncio.sleep(0)
        assert len(engine.asked) == 1
        work.cancel()
        with pytest.raises(Paused) as paused:
            await work
        return paused.value.prefix

    prefix = asyncio.run(stopped())
    assert prefix is not None
    check_trajectory(prefix)
    assert play(Script("hgfe"), "lookup", TABLE, prefix=prefix).reward == 1.0


def test_an_answer_of_the_engine_alone_says_its_temperature() -> None:
    """Without it no loss can be made of it."""
    seed = dispatch("reversal", WORD, messages=[{"role": "user", "content": "abcd=dcba!"}], budget=1).seed
    made = asyncio.run(engine_answer(seed, Script("a")))
    assert [node.get("temperature") for node in made.record["nodes"]] == [None, Script.temperature]


def test_two_environments_of_one_name_are_refused() -> None:
    with pytest.raises(SettingsError, match="two environments have the name 'recall'"):
        EnvironmentTable([Recall(), Recall()])


def test_an_environment_that_isnt_here_is_named() -> None:
    with pytest.raises(SettingsError, match="no environment 'chess'"):
        play(Script(), "chess", WORD)
    with pytest.raises(SettingsError, match="no environment 'chess' is installed"):
        installed_environment("chess")
    assert installed_environment("lookup") == Lookup()


@pytest.mark.parametrize("name", ["lookup", "recall", "reversal"])
def test_tasks_are_the_same_for_the_same_seed_and_all_can_be_tokenised(name: str) -> None:
    environment = installed_environment(name)
    tasks, again = environment.tasks(3), environment.tasks(3)
    some = [next(tasks) for _ in range(50)]
    assert some == [next(again) for _ in range(50)]
    assert len({task["key"] for task in some}) == 50
    assert some != [next(other) for other in [environment.tasks(4)] for _ in range(50)]
    for task in some:
        TOKENIZER.render(environment.prompt(task))


def test_a_score_is_the_share_of_places_that_are_right() -> None:
    assert [share_right(a, "abcd") for a in ("abcd", "abca", "dcba", "", "abcda")] == [1, 0.75, 0, 0, 0.8]


def test_a_worker_has_installed_ones_and_ones_own_or_one_that_does_it_all(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "own_words.py").write_text(
        "from rolloutlog.producers.environments.reversal import Reversal\n"
        "class Mine(Reversal):\n    name = 'mine'\n"
        "class Whole:\n    async def rollout(self, dispatch, engine): ...\n"
        "class Half:\n    def tasks(self, seed): ...\n"
    )
    made = environments_of(["lookup", "own_words:Mine"])
    assert isinstance(made, EnvironmentTable)
    assert [made.of(name).name for name in ("lookup", "mine")] == ["lookup", "mine"]
    assert not isinstance(environments_of(["own_words:Whole"]), EnvironmentTable)
    for bad in (["own_words:Half"], ["lookup", "own_words:Whole"]):
        with pytest.raises(SettingsError, match="has no method"):
            environments_of(bad)
