"""What foreign text may do to a terminal: nothing (design/commands#foreign-text)."""

from __future__ import annotations

import json
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rolloutlog.cli.screen.escapes import shown, shown_json
from rolloutlog.cli.screen.output import json_text

ANY = st.text(st.characters())
"""Lone surrogates included."""


@pytest.mark.parametrize(
    ("foreign", "text"),
    [
        ("\x1b]0;owned\x07", "\\x1b]0;owned\\x07"),
        ("\x1b[2J\x1b[31m", "\\x1b[2J\\x1b[31m"),
        ("\x9b31m", "\\x9b31m"),
        ("two\nlines\r\t", "two\\nlines\\r\\t"),
        ("user\u202etxt.exe", "user\\u202etxt.exe"),
        ("\u2066hidden\u2069", "\\u2066hidden\\u2069"),
        ("line\u2028end", "line\\u2028end"),
        ("path-\udc80", "path-\\udc80"),
        ("tag\U000e0041", "tag\\U000e0041"),
        ("[red]markup[/] :smile:", "[red]markup[/] :smile:"),
        ("größe 数 👩‍🚀", "größe 数 👩‍🚀"),
    ],
)
def test_what_steers_a_terminal_is_shown_as_text(foreign: str, text: str) -> None:
    assert shown(foreign) == text


@given(ANY)
def test_nothing_hidden_is_left(foreign: str) -> None:
    text = shown(foreign)
    text.encode()
    hidden = {each for each in text if unicodedata.category(each) in ("Cc", "Cf", "Cs", "Zl", "Zp")}
    assert hidden <= {"\u200c", "\u200d"}


@given(ANY)
def test_json_stays_the_same_json(foreign: str) -> None:
    text = json_text({foreign: [foreign]})
    assert json.loads(text) == {foreign: [foreign]}
    assert text == shown_json(text)
    text.encode()
