"""A taskset and an environment of `verifiers` 0.4, unchanged, by one adapter (design/live-loop#verifiers).

In an environment of its own, whose Python `VERIFIERS_PYTHON` names, since its pins aren't ours; what it lacks of our
dependencies it finds behind its own.
"""

from __future__ import annotations

import json
import os
import subprocess
import sysconfig
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]

TASKSET = '''
"""A user's own: words to reverse, a harness that asks twice, and a rubric. Nothing here knows of rolloutlog."""
import openai
import verifiers.v1 as vf


class WordData(vf.TaskData):
    word: str


class WordTask(vf.Task[WordData]):
    @vf.reward(weight=1.0)
    async def reversed_word(self, task, trace):
        said, wanted = trace.last_reply, task.word[::-1]
        return sum(a == b for a, b in zip(said, wanted)) / len(wanted)

    @vf.metric
    async def answers(self, trace):
        return float(len(trace.assistant_messages))


class Words(vf.Taskset[WordTask]):
    def load(self):
        for word in ("abc", "bca"):
            yield WordTask(WordData(prompt=word + "=", word=word), self.config.task)


class TwiceConfig(vf.HarnessConfig):
    id: str = "my_words"


class Twice(vf.Harness[TwiceConfig]):
    """Asks, says "?" to the answer, and asks again."""

    APPENDS_SYSTEM_PROMPT = True
    EXECUTES_CODE = False
    NEEDS_CONTAINER = False

    async def launch(self, ctx, trace, runtime, endpoint, secret, mcp_urls, data):
        _, prompt = self.resolve_prompt(data)
        said = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else [
            message.model_dump(exclude_none=True) for message in prompt
        ]
        async with openai.AsyncOpenAI(base_url=endpoint, api_key=secret, max_retries=0) as client:
            for _ in range(2):
                answer = await client.chat.completions.create(model=ctx.model, messages=said)
                said.append({"role": "assistant", "content": answer.choices[0].message.content})
                said.append({"role": "user", "content": "?"})
        return vf.ProgramResult(exit_code=0, stdout="", stderr="")


__all__ = ["Words", "Twice"]
'''

PROGRAM = """
import asyncio, json, sys
sys.path[1:1] = sys.argv[1:3]
sys.path.append(sys.argv[3])
import verifiers.v1 as vf
from rolloutlog.contract.errors import EngineUnavailable
from rolloutlog.contract.events.seeds import Ask, Seed
from rolloutlog.contract.record.rollout import Rollout
from rolloutlog.contract.record.sample import Sample
from rolloutlog.contract.vocabulary import SeedKind
from rolloutlog.producers.checked_record import checked_rollout
from rolloutlog.producers.verifiers.verifiers_environment import VerifiersEnvironment
from rolloutlog.producers.workers.environment import Dispatch
from tests.producers.scripted import TOKENIZER, Script


class Changing(Script):
    # every answer is of the next policy, and the second of all is stopped in the middle
    async def sample(self, prompt_ids, *, max_tokens=None):
        if len(self.asked) == len(self.answers):
            raise EngineUnavailable("gone")
        sample = await super().sample(prompt_ids, max_tokens=max_tokens)
        self.policy = self.policy._replace(version=self.policy.version + 1)
        return sample


async def played(environment, engine, task, **given):
    seed = Seed(id="s", kind=SeedKind.FRESH, group="g", group_size=2, env=environment.name, task=task, **given)
    ask = Ask(member=0, attempt=1)
    dispatch = Dispatch(seed, ask, seed.slot(ask, 0, run="r"), None)
    made = await environment.rollout(dispatch, engine)
    checked_rollout(Rollout(dispatch.slot, made), source="/t", now=1)
    nodes = made.as_nodes()
    return {
        "record": {name: made.record[name] for name in ("reward", "metrics", "stop_condition")},
        "said": [[node.message["role"], node.message["content"], node.sampled] for node in nodes],
        "ids": [[int(token) for token in node.token_ids] for node in nodes],
        "trained": [int(sum(node.mask)) for node in nodes],
        "segments": [[list(map(int, run)) for run in node.segments] for node in nodes],
        "asked": [ids for ids, _ in engine.asked],
        "facts": [node.facts for node in nodes],
    }


async def main():
    config = vf.SingleAgentEnvConfig(taskset={"id": "my_words"}, agent={"runtime": {"type": "subprocess"}})
    out = {}
    async with VerifiersEnvironment(vf.load_environment(config)) as environment:
        tasks = list(environment.tasks(0))
        out["keys"] = [task["key"] for task in tasks]
        engine = Changing("cab", "cb", "a", stops={1: 2})
        out["fresh"] = await played(environment, engine, tasks[0])
    async with VerifiersEnvironment(vf.load_environment(config)) as environment:
        before = [{"role": "user", "content": "bca="}, {"role": "assistant", "content": "b"}]
        before.append({"role": "user", "content": "?"})
        engine = Changing("a", "acb")
        out["derived"] = await played(environment, engine, tasks[1], messages=before, derivation="recheck")
    async with VerifiersEnvironment(vf.load_environment(config)) as environment:
        try:
            await played(environment, Changing("a"), tasks[1])
        except EngineUnavailable as error:
            out["gone"] = str(error)
    print(json.dumps(out))


asyncio.run(main())
"""


@pytest.mark.skipif(
    not os.environ.get("VERIFIERS_PYTHON"), reason="VERIFIERS_PYTHON names no Python with verifiers 0.4.0"
)
def test_a_taskset_runs_unchanged_and_its_rubric_scores_derived_rollouts_too(tmp_path: Path) -> None:
    (tmp_path / "my_words.py").write_text(TASKSET)
    ours = sysconfig.get_path("purelib")
    done = subprocess.run(
        [os.environ["VERIFIERS_PYTHON"], "-c", PROGRAM, str(ROOT), str(tmp_path), ours],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    out: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    assert len(set(out["keys"])) == 2
    fresh, derived = out["fresh"], out["derived"]
    assert fresh["record"] == {
        "reward": 1.0,
        "metrics": {"answers": 2.0},
        "stop_condition": fresh["record"]["stop_condition"],
    }
    assert fresh["said"] == [
        ["user", "abc=", False],
        ["assistant", "cab", True],
        ["user", "?", False],
        ["assistant", "cba", True],
    ]
    assert fresh["trained"] == [0, 3, 0, 3]
    assert fresh["segments"] == [[], [[0, 0, 0]], [], [[0, 1, 0], [0, 2, 2]]]
    path: list[int] = []
    for ids, sampled in zip(fresh["ids"], fresh["trained"], strict=True):
        if sampled:
            assert path in fresh["asked"], "the engine read exactly what the nodes before its answer hold"
        path += ids
    assert fresh["facts"][1] == {"temperature": 0.5}
    assert derived["record"]["reward"] == 1.0, "the innermost task's word, whatever the seed's messages"
    assert [row[2] for row in derived["said"]] == [False, False, False, True, False, True]
    assert derived["trained"] == [0, 0, 0, 1, 0, 3], "what was seeded is context"
    assert out["gone"] == "gone"
