"""Characters as tokens (design/live-loop#tokenizer)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rolloutlog.contract.errors import UnknownCharacter
from rolloutlog.policy.tokenizer import CharTokenizer

LETTERS = "abc =?"


@given(st.text(LETTERS))
def test_what_is_encoded_decodes_to_itself(text: str) -> None:
    assert CharTokenizer(LETTERS).decode(CharTokenizer(LETTERS).encode(text)) == text


def test_a_conversation_is_roles_and_characters_and_ends_where_the_model_speaks() -> None:
    made = CharTokenizer(LETTERS)
    ids = made.render([
        {"role": "user", "content": "ab"},
        {"role": "assistant", "content": "c"},
        {"role": "tool", "content": [{"type": "text", "text": "="}]},
    ])  # fmt: skip
    user, assistant, tool = (len(LETTERS) + i for i in (1, 2, 3))
    assert ids == [user, 0, 1, assistant, 2, made.end, tool, 4, assistant]
    assert made.size == len(LETTERS) + 5


@pytest.mark.parametrize(
    ("message", "said"),
    [
        ({"role": "user", "content": "xyz"}, "no 'x'"),
        ({"role": "narrator", "content": ""}, "the role 'narrator'"),
        ({"content": "a"}, "the role None"),
    ],
    ids=["letter", "role", "no-role"],
)
def test_what_it_doesnt_have_is_named(message: dict[str, str], said: str) -> None:
    with pytest.raises(UnknownCharacter, match=said):
        CharTokenizer(LETTERS).render([message])


def test_a_message_without_text_is_its_role_alone() -> None:
    made = CharTokenizer(LETTERS)
    assert made.render([{"role": "user", "content": None}]) == made.render([{"role": "user", "content": ""}])


def test_letters_are_distinct_and_have_a_digest() -> None:
    with pytest.raises(ValueError, match="twice"):
        CharTokenizer("aa")
    assert CharTokenizer("ab").digest == CharTokenizer("ab").digest != CharTokenizer("ba").digest
