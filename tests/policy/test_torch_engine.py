"""The torch engine: batches, weights that change between two tokens, and whose every token is
(design/live-loop#engine)."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from pathlib import Path

import pytest

pytest.importorskip("torch")

from rolloutlog.contract.errors import EngineFailed, NotOpen, SettingsError, WeightsUnusable
from rolloutlog.contract.policies import Policy
from rolloutlog.contract.record.sample import Sample
from rolloutlog.policy.torch_engine import OnSwap, TorchEngine
from rolloutlog.policy.weights import save_weights
from tests.policy.small import SHAPE, TOKENIZER, engine, logprobs_of, model, saved

PROMPT = [1, 2, 3, TOKENIZER.end + -1]


def check(prompt: list[int], sample: Sample) -> None:
    """Every token has the log-prob that the policy of its segment gives it."""
    ids = sample.token_ids.tolist()
    bounds = [offset for _, _, offset in sample.segments] + [len(ids)]
    for (_, version, start), (_, end) in zip(sample.segments, pairwise(bounds), strict=True):
        expected = logprobs_of(prompt, ids, version)[start:end]
        assert sample.logprobs[start:end].tolist() == pytest.approx(expected, abs=1e-4)


@pytest.mark.anyio
async def test_calls_at_once_are_decoded_together_and_each_gets_its_own() -> None:
    prompts = [[i % 8, (3 * i) % 8] for i in range(100)]
    async with engine(rows=16) as made:
        samples = await asyncio.gather(*(made.sample(prompt, max_tokens=1 + i % 7) for i, prompt in enumerate(prompts)))
    for number, (prompt, sample) in enumerate(zip(prompts, samples, strict=True)):
        check(prompt, sample)
        assert len(sample.token_ids) <= 1 + number % 7
        assert sample.text == TOKENIZER.decode(sample.token_ids.tolist())


async def swapped(tmp_path: Path, on_swap: OnSwap) -> list[Sample]:
    """Samples around two changes of weights, which come while they are under way."""
    weights = [saved(tmp_path, seed) for seed in (1, 2)]
    async with engine(on_swap) as made:
        under_way = [asyncio.create_task(made.sample(PROMPT)) for _ in range(40)]
        for version, (uri, digest) in enumerate(weights, 1):
            await made.update(Policy(0, version), uri, digest)
            assert made.policy == Policy(0, version)
        later = await made.sample(PROMPT, max_tokens=3)
        assert [s[:2] for s in later.segments] == [(0, 2)]
        return [*await asyncio.gather(*under_way), later]


@pytest.mark.anyio
async def test_in_place_rows_go_on_and_say_whose_each_token_is(tmp_path: Path) -> None:
    samples = await swapped(tmp_path, "in-place")
    for sample in samples:
        check(PROMPT, sample)


@pytest.mark.anyio
async def test_finish_lets_no_sample_mix_policies(tmp_path: Path) -> None:
    for sample in await swapped(tmp_path, "finish"):
        check(PROMPT, sample)
        assert len(sample.segments) == 1
        assert sample.stop != "abort"


@pytest.mark.anyio
async def test_abort_gives_back_what_was_sampled(tmp_path: Path) -> None:
    for sample in await swapped(tmp_path, "abort"):
        check(PROMPT, sample)
        assert len(sample.segments) <= 1


@pytest.mark.anyio
async def test_a_change_in_the_middle_of_a_row_begins_a_segment(tmp_path: Path) -> None:
    """Long rows, and one that is long enough to see both."""
    uri, digest = saved(tmp_path, 1)
    async with engine() as made:
        seen: list[Sample] = []
        for _ in range(50):
            under_way = [asyncio.create_task(made.sample([1])) for _ in range(60)]
            await asyncio.sleep(0.002)
            await made.update(Policy(0, 1), uri, digest)
            seen += await asyncio.gather(*under_way)
            if any(len(sample.segments) > 1 for sample in seen):
                break
            await made.update(Policy(0, 0), *saved(tmp_path, 0))
    mixed = [sample for sample in seen if len(sample.segments) > 1]
    assert mixed
    for sample in mixed:
        check([1], sample)


@pytest.mark.anyio
async def test_weights_that_cant_be_used_change_nothing(tmp_path: Path) -> None:
    uri, digest = saved(tmp_path, 1)
    async with engine() as made:
        with pytest.raises(WeightsUnusable):
            await made.update(Policy(0, 1), uri, "0" * 64)
        assert made.policy == Policy(0, 0)
        check(PROMPT, await made.sample(PROMPT))
        await made.update(Policy(0, 1), uri, digest)
        assert made.policy == Policy(0, 1)


@pytest.mark.anyio
async def test_odds_that_arent_numbers_are_an_error_and_the_engine_goes_on(tmp_path: Path) -> None:
    broken = model(1)
    broken.unembed.weight.data.fill_(float("nan"))
    async with engine() as made:
        await made.update(Policy(0, 1), *save_weights(broken, tmp_path, Policy(0, 1)))
        with pytest.raises(EngineFailed, match="aren't numbers"):
            await made.sample(PROMPT)
        await made.update(Policy(0, 2), *saved(tmp_path, 2))
        check(PROMPT, await made.sample(PROMPT))


@pytest.mark.anyio
async def test_a_cancelled_call_leaves_the_batch() -> None:
    async with engine(rows=1) as made:
        for _ in range(20):
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(made.sample(PROMPT), 1e-6)
        check(PROMPT, await asyncio.wait_for(made.sample(PROMPT), 20))


@pytest.mark.anyio
async def test_the_event_loop_goes_on_while_it_samples() -> None:
    async with engine() as made:
        calls = asyncio.gather(*(made.sample(PROMPT) for _ in range(200)))
        turns = 0
        while not calls.done():
            await asyncio.sleep(0)
            turns += 1
        samples = await calls
    assert turns > max(len(sample.token_ids) for sample in samples)


@pytest.mark.anyio
async def test_a_budget_of_nothing_is_answered_without_the_model() -> None:
    async with engine() as made:
        sample = await made.sample(PROMPT, max_tokens=0)
    assert (len(sample.token_ids), sample.segments, sample.stop) == (0, [], "length")


@pytest.mark.anyio
@pytest.mark.parametrize("prompt", [[], [1] * SHAPE.context, [99], [-1]], ids=["empty", "long", "strange", "negative"])
async def test_a_prompt_that_it_cant_read_is_refused(prompt: list[int]) -> None:
    async with engine() as made:
        with pytest.raises(SettingsError):
            await made.sample(prompt)


@pytest.mark.anyio
async def test_who_waits_when_it_is_closed_is_told() -> None:
    made = engine(rows=1)
    async with made:
        waiting = [asyncio.create_task(made.sample([1])) for _ in range(50)]
        await asyncio.sleep(0)
    results = await asyncio.gather(*waiting, return_exceptions=True)
    assert all(isinstance(result, Sample | EngineFailed) for result in results)
    assert any(isinstance(result, EngineFailed) for result in results)
    with pytest.raises(NotOpen):
        await made.sample([1])


def test_a_temperature_of_nothing_is_refused() -> None:
    with pytest.raises(SettingsError, match="temperature 0"):
        TorchEngine(model(), TOKENIZER, Policy(0, 0), temperature=0.0)
