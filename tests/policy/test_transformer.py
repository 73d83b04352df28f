"""The small transformer: one answer, packed, padded or cached (design/live-loop#model)."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rolloutlog.contract.policies import Policy
from rolloutlog.policy.decoding import DecodedRow, Decoder
from rolloutlog.policy.transformer import CausalTransformer, ModelShape
from tests.policy.small import SHAPE, TOKENIZER, logprobs_of, model

TEXT = st.lists(st.integers(0, TOKENIZER.size - 1), min_size=1, max_size=12)


@settings(max_examples=25)
@given(st.lists(TEXT, min_size=1, max_size=4))
def test_a_sequence_sees_nothing_of_its_neighbours_in_a_pack(texts: list[list[int]]) -> None:
    ids = torch.tensor([token for text in texts for token in text])
    places = torch.tensor([i for text in texts for i in range(len(text))])
    bounds = torch.tensor([0, *(len(text) for text in texts)]).cumsum(0).int()
    made = model()
    packed = made(ids, places, bounds)
    alone = torch.cat([made.whole(torch.tensor([text]))[0] for text in texts])
    assert torch.allclose(packed, alone, atol=1e-5)


def test_a_pack_of_nothing_has_no_logits() -> None:
    nothing = torch.zeros(0, dtype=torch.long)
    assert model()(nothing, nothing, torch.zeros(1, dtype=torch.int32)).shape == (0, TOKENIZER.size)


@settings(max_examples=25)
@given(st.lists(st.tuples(TEXT, st.integers(1, 9)), min_size=1, max_size=5), st.integers(1, 3))
def test_what_rows_sample_has_the_log_probs_of_the_whole_text(rows: list[tuple[list[int], int]], room: int) -> None:
    """Rows come and go, so that slots of the cache are used again."""
    decoder = Decoder(model(), Policy(0, 0), rows=room, end=TOKENIZER.end, temperature=1.0, seed=3)
    waiting = [DecodedRow(prompt, limit) for prompt, limit in rows]
    done: list[DecodedRow] = []
    while waiting or decoder.rows:
        decoder.admit([waiting.pop() for _ in range(min(decoder.room, len(waiting)))])
        done += decoder.step()
    assert len(done) == len(rows)
    for row in done:
        assert row.logprobs == pytest.approx(logprobs_of(row.prompt, row.ids, 0), abs=1e-4)
        assert row.ended == ("stop" if row.ids[-1] == TOKENIZER.end else "length")
        assert len(row.ids) <= row.limit
        assert row.segments == [(0, 0, 0)]


def test_odds_are_nearly_even_before_anything_was_learned() -> None:
    """Else nothing is explored; here by the model's own first weights."""
    torch.manual_seed(0)
    odds = CausalTransformer(SHAPE).whole(torch.tensor([[1, 2, 3]])).softmax(-1)
    assert odds.max().item() < 2 / TOKENIZER.size


def test_heads_that_dont_divide_the_width_are_refused() -> None:
    with pytest.raises(ValueError, match="3 heads"):
        ModelShape(vocabulary=8, width=16, heads=3)
