"""`worker run --engine torch`: the torch engine behind a worker, with weights that are published while it samples
(design/live-loop#updates)."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

from rolloutlog.broker import EmbeddedKafka
from rolloutlog.contract.errors import SettingsError
from rolloutlog.contract.events.validation import read_rollout
from rolloutlog.contract.policies import Policy
from rolloutlog.contract.settings import Settings
from rolloutlog.policy.engine_options import torch_engine
from rolloutlog.producers.policy_publisher import PolicyPublisher
from rolloutlog.producers.workers.engine_table import engine_named
from tests.cli.test_metrics_port import free_port, get
from tests.live.shell import Shell
from tests.policy.small import TOKENIZER, logprobs_of, saved
from tests.producers.log import emit, everything, seed_of, until

CONFIG = f"""
[topics]
partitions = 2
[worker.engine]
letters = "{TOKENIZER.letters}"
seed = 5
"""
ASK: dict[str, Any] = {"messages": [{"role": "user", "content": "abcd"}], "env": "reversal", "task": {"word": "abcd"}}


@asynccontextmanager
async def worker(settings: Settings, folder: Path, port: int) -> AsyncGenerator[asyncio.subprocess.Process]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *(
            "-c",
            "from rolloutlog.cli.start import main; main()",
            "worker",
            "run",
            "--environment",
            "reversal",
            "--engine",
            "torch",
            "--metrics-port",
            str(port),
        ),
        *("-n", settings.namespace, "-b", str(settings.bootstrap_servers)),
        cwd=folder,
        stderr=(folder / "stderr").open("wb"),
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGTERM)
        await asyncio.wait_for(process.wait(), 60)


async def by_policy(settings: Settings, *, at_least: int) -> dict[str, set[Policy]]:
    """Once so many answers are on the log: the policies of each group. Every log-prob is what its policy gives."""
    rollouts = []

    async def are_there() -> bool:
        rollouts[:] = [read_rollout(e) for e in await everything(settings) if e.headers.type == "rollout.completed"]
        return len(rollouts) >= at_least

    await until(are_there, 150)  # importing torch takes a minute where the machine is busy
    found: dict[str, set[Policy]] = {}
    for rollout in rollouts:
        made = rollout.trajectory
        prompt, answer = made.as_nodes()
        ids = [int(token) for token in answer.token_ids]
        ((_, version, _),) = answer.segments
        expected = logprobs_of([int(token) for token in prompt.token_ids], ids, version)
        assert [float(number) for number in answer.logprobs] == pytest.approx(expected, abs=1e-4)
        found.setdefault(rollout.slot.group, set()).update(made.policy_span or ())
    return found


@pytest.mark.broker
@pytest.mark.timeout(400)
def test_a_worker_samples_with_what_was_published_last(kafka_broker: EmbeddedKafka, tmp_path: Path) -> None:
    """Weights that can't be read leave the old ones; another timeline is a newer policy, whatever its number."""
    shell = Shell(kafka_broker, tmp_path, CONFIG)
    shell.run("topics", "create")
    settings = shell.settings
    weights, port = {seed: saved(tmp_path, seed) for seed in (0, 1, 2)}, free_port()

    async def body() -> None:
        async with worker(settings, tmp_path, port) as process:
            await emit(settings, seed_of("first", **ASK))
            async with PolicyPublisher(settings, uri=weights[0].uri, digest=weights[0].digest) as policies:
                assert await by_policy(settings, at_least=2) == {"first": {Policy(0, 0)}}
                await policies.publish(2, uri=weights[2].uri, digest=weights[2].digest)
                await emit(settings, *(seed_of(name, **ASK) for name in ("second", "third")))
                found = await by_policy(settings, at_least=6)
                assert found["third"] == {Policy(0, 2)} or found["second"] == {Policy(0, 2)}
                await policies.publish(3, uri=weights[1].uri, digest="0" * 64)
                told = "can't load the weights of policy 0:3, 0:2 goes on"
                await until(lambda: told in (tmp_path / "stderr").read_text())
                await emit(settings, seed_of("fourth", **ASK))
                assert (await by_policy(settings, at_least=8))["fourth"] == {Policy(0, 2)}
            async with PolicyPublisher(settings, resume=Policy(0, 0)) as resumed:
                await resumed.publish(1, uri=weights[1].uri, digest=weights[1].digest)
                await asyncio.sleep(1)
                await emit(settings, seed_of("fifth", **ASK))
                assert (await by_policy(settings, at_least=10))["fifth"] == {Policy(1, 1)}
            told = await asyncio.to_thread(get, port)
            assert 'rolloutlog_worker_members_by_ending_total{by="completed"} 10\n' in told
        assert process.returncode == 0

    asyncio.run(body())


def test_options_that_it_hasnt_or_that_cant_work_are_refused() -> None:
    for options, says in (
        ({"letter": "ab"}, "worker.engine.letter: Extra inputs"),
        ({"letters": "aa"}, "worker.engine.letters: .*stands twice"),
        ({"temperature": 0}, r"worker.engine.temperature"),
        ({"on_swap": "hope"}, "worker.engine.on_swap"),
    ):
        with pytest.raises(SettingsError, match=says):
            engine_named("torch", options)
    assert torch_engine(letters="ab").vocabulary == 7
    with pytest.raises(SettingsError, match="no engine 'tensor' is installed"):
        engine_named("tensor", {})
    with pytest.raises(SettingsError, match="isn't given"):
        engine_named("tests.producers.sums:Digits", {"letters": "ab"})
